"""Lightning, accelerate and Transformers take a loader as it is, and it stays native; each where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import brimful
from brimful import transforms as T
from conftest import sample, write_shard

torch = pytest.importorskip("torch")

SAMPLES = 50
HERE = Path(__file__).resolve().parent
CROP = T.Compose([T.RandomResizedCrop(16), T.ToTensor()])

# Every keyword that is not torch's, with a value that is not its default and that a CPU takes.
OURS = {
    "dtype": "float16",
    "layout": "channels_last",
    "seed": 3,
    "on_error": "replace",
    "max_errors": 4,
    "remainder": "drop",
    "decoder": "zune",
    "io": "read",
    "shuffle_window": 2,
    "snapshot_every_n_steps": 5,
    "device_batches_max": 8,
    "stages": "threads",
}


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frameworks")
    for shard, numbers in enumerate((range(20), range(20, SAMPLES))):
        write_shard(folder / f"{shard}.tar", [sample(number, width=64, height=48) for number in numbers])
    return str(folder / "*.tar")


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    """A number of samples that processes cannot share evenly."""
    folder = tmp_path_factory.mktemp("odd")
    return str(write_shard(folder / "0.tar", [{"__key__": b"%d" % n, "cls": b"%d" % n} for n in range(19)]))


@pytest.fixture()
def dataset(shards):
    return brimful.ShardDataset(shards, transform=CROP)


def options_of(loader):
    return {name: getattr(loader, name) for name in OURS} | {"engine": loader._engine.options}


def in_two_processes(program, out, *arguments):
    """What a program writes as JSON, run by torchrun on two processes: one document a rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", HERE / program]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*command, out, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(Path(out, f"{rank}.json").read_text()) for rank in range(2)]


class TestAccelerate:
    @pytest.fixture()
    def accelerator(self):
        return pytest.importorskip("accelerate", reason="accelerate is not installed").Accelerator(cpu=True)

    def test_prepare_hands_the_loader_back_with_every_keyword(self, accelerator, dataset, tmp_path):
        loader = brimful.DataLoader(dataset, 8, shuffle=True, num_workers=2, quarantine=tmp_path / "bad", **OURS)
        before = options_of(loader)
        prepared = accelerator.prepare(loader)
        assert prepared is loader
        assert (prepared.explain().engine, options_of(prepared)) == ("native", before)
        assert accelerator.prepare(prepared) is loader
        assert accelerator.prepare_data_loader(brimful.DataLoader(dataset, 8)).explain().engine == "native"

    def test_looking_at_a_loader_prepares_nothing(self, accelerator, dataset):
        loader = brimful.DataLoader(dataset, 8)
        assert loader._is_accelerate_prepared is False
        assert loader._preparation is None

    def test_the_end_of_an_epoch_is_announced(self, accelerator, dataset):
        loader = accelerator.prepare(brimful.DataLoader(dataset, 8))
        ends = [(accelerator.gradient_state.end_of_dataloader, accelerator.gradient_state.remainder) for _ in loader]
        assert ends == [(False, 2)] * 6 + [(True, 2)]
        assert not accelerator.gradient_state.in_dataloader
        for _ in loader:
            break
        assert not accelerator.gradient_state.in_dataloader
        synced = []
        accelerator.gradient_accumulation_steps = 4
        for _ in loader:
            with accelerator.accumulate():
                synced.append(accelerator.sync_gradients)
        assert synced == [False] * 3 + [True] + [False] * 2 + [True]
        accelerator.gradient_accumulation_steps = 1

    @pytest.mark.parametrize("taken", [0, 1, 3, 7])
    def test_the_state_is_that_of_the_batch_given_and_not_of_the_one_ahead(self, accelerator, dataset, taken):
        def make():
            return accelerator.prepare(brimful.DataLoader(dataset, 8, shuffle=True, seed=1))

        whole, loader, resumed = make(), make(), make()
        expected = [labels.tolist() for _ in range(2) for _, labels in whole]
        batches = iter(loader)
        got = [next(batches)[1].tolist() for _ in range(taken)]
        resumed.load_state_dict(loader.state_dict())
        rest = [labels.tolist() for _ in range(2) for _, labels in resumed]
        assert (got + rest)[: len(expected)] == expected

    def test_a_part_of_an_epoch_that_is_skipped_is_that_of_the_native_order(self, accelerator, dataset):
        skip = pytest.importorskip("accelerate").skip_first_batches
        loader = accelerator.prepare(brimful.DataLoader(dataset, 8, shuffle=True, seed=1))
        for epoch in (0, 2):
            loader.set_epoch(epoch)
            expected = [labels.tolist() for _, labels in loader][3:]
            loader.set_epoch(epoch)
            assert [labels.tolist() for _, labels in skip(loader, 3)] == expected

    def test_what_only_accelerates_own_loader_does_is_told(self, dataset):
        accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
        configuration = accelerate.DataLoaderConfiguration(dispatch_batches=True)
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
        with pytest.warns(UserWarning, match="dispatch_batches.*leave it None"):
            assert not isinstance(accelerator.prepare(brimful.DataLoader(dataset, 8)), brimful.DataLoader)

    def test_a_loader_of_torchs_machinery_is_prepared_as_torchs_are(self, accelerator):
        loader = brimful.DataLoader(torch.utils.data.TensorDataset(torch.arange(6)), 3)
        assert [batch.tolist() for [batch] in accelerator.prepare(loader)] == [[0, 1, 2], [3, 4, 5]]

    def test_two_processes_share_the_samples_and_gather_each_once(self, shards, odd, tmp_path):
        pytest.importorskip("accelerate", reason="accelerate is not installed")
        ranks = in_two_processes("accelerate_job.py", tmp_path, shards, odd)
        for name in ("plain", "ranked", "sampled"):
            parts = [rank[name] for rank in ranks]
            assert [part["engine"] for part in parts] == ["native"] * 2
            assert len(parts[0]["labels"]) == len(parts[1]["labels"]) == SAMPLES // 2
            assert sorted(parts[0]["labels"] + parts[1]["labels"]) == list(range(SAMPLES)), name
            assert sorted(parts[0]["skipped"] + parts[1]["skipped"]) == sorted(
                label for part in parts for label in part["labels"][7:]
            )
        assert [len(batch) for batch in ranks[0]["split_batches"]][:6] == [4] * 6
        for rank in ranks:
            assert rank["gathered"] == list(range(19)), "each sample counts once, in order; padding does not"


class TestLightning:
    @pytest.fixture()
    def fit(self, tmp_path):
        lightning = pytest.importorskip("lightning", reason="lightning is not installed")

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3 * 16 * 16, 1)
                self.labels = []

            def training_step(self, batch, index):
                self.labels.append(batch[1].tolist())
                return self.layer(batch[0].float().flatten(1)).mean()

            def predict_step(self, batch, index):
                return batch[1]

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.01)

        def fit(loader, max_epochs, *callbacks, checkpoint=None, predict=False, **options):
            quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
            trainer = lightning.Trainer(
                max_epochs=max_epochs,
                accelerator="cpu",
                callbacks=list(callbacks),
                enable_checkpointing=bool(callbacks),
                **quiet,
            )
            module = Module()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if predict:
                    return trainer, trainer.predict(module, loader)
                trainer.fit(module, loader, ckpt_path=checkpoint)
            return trainer, module.labels

        return fit

    def test_the_trainer_keeps_loader_and_keywords(self, fit, dataset, tmp_path):
        loader = brimful.DataLoader(dataset, 8, shuffle=True, num_workers=2, quarantine=tmp_path / "bad", **OURS)
        before = options_of(loader)
        trainer, labels = fit(loader, 2)
        assert trainer.train_dataloader is loader
        assert (loader.explain().engine, options_of(loader)) == ("native", before)
        assert [sorted(sum(labels[start : start + 7], [])) for start in (0, 7)] == [list(range(SAMPLES))] * 2

    def test_a_loader_that_is_made_anew_keeps_every_keyword(self, dataset, tmp_path):
        """What the trainer does to put a distributed sampler in, on whatever device it trains."""
        data = pytest.importorskip("lightning.pytorch.utilities.data", reason="lightning is not installed")
        given = {"quarantine": tmp_path / "bad", "drop_last": True, "pin_memory": False, "timeout": 60}
        loader = brimful.DataLoader(dataset, 8, shuffle=True, num_workers=2, **given, **OURS)
        sampler = torch.utils.data.DistributedSampler(loader.dataset, 2, 1)
        again = data._update_dataloader(loader, sampler)
        assert (type(again), again.explain().engine) == (brimful.DataLoader, "native")
        expected, options = options_of(loader), options_of(again)
        engine = expected.pop("engine") | {"split": (1, 2), "remainder": "pad"}
        assert (options.pop("engine"), options) == (engine, expected)
        assert again.dataset is loader.dataset
        assert again.quarantine == tmp_path / "bad"
        loader = brimful.DataLoader(
            dataset, 8, shuffle=True, num_workers=2, **given, **{**OURS, "shuffle_window": None}
        )
        again = data._update_dataloader(loader, sampler)
        expected, options = options_of(loader)["engine"], options_of(again)["engine"]
        # Without a window the numbers are the sampler's; whole batches of them are taken where they are taken.
        order = {"order": "given", "shuffle": False, "drop_last": False, "remainder": "pad"}
        assert options == expected | order
        assert (again.drop_last, again._batching.drop_last) == (True, True)

    @pytest.mark.parametrize("where", ["epoch", "step"])
    def test_training_that_is_resumed_goes_on_with_the_next_sample(self, fit, dataset, tmp_path, where):
        callbacks = pytest.importorskip("lightning.pytorch.callbacks", reason="lightning is not installed")

        def make():
            return brimful.DataLoader(dataset, 8, shuffle=True, seed=3)

        _, expected = fit(make(), 3)
        every = {"every_n_epochs": 1} if where == "epoch" else {"every_n_train_steps": 3}
        keep = callbacks.ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, **every)
        _, labels = fit(make(), 2, keep)
        assert labels == expected[:14]
        checkpoint = tmp_path / ("epoch=1-step=14.ckpt" if where == "epoch" else "epoch=1-step=9.ckpt")
        _, rest = fit(make(), 3, checkpoint=checkpoint)
        assert rest == expected[14 if where == "epoch" else 9 :]

    def test_predictions_cover_every_sample(self, fit, dataset):
        _, predictions = fit(brimful.DataLoader(dataset, 8), 1, predict=True)
        assert torch.cat(predictions).tolist() == list(range(SAMPLES))

    @pytest.mark.parametrize("options", [{}, {"split": "rank"}], ids=["plain", "ranked"])
    def test_two_processes_share_the_samples(self, shards, options, tmp_path):
        pytest.importorskip("lightning", reason="lightning is not installed")
        ranks = in_two_processes("lightning_job.py", tmp_path, shards, json.dumps(options))
        assert [rank["engine"] for rank in ranks] == ["native"] * 2
        assert [rank["options"] for rank in ranks] == [{"seed": 3, "dtype": "float16", "decoder": "zune"}] * 2
        for epoch in range(2):
            parts = [rank["epochs"][epoch] for rank in ranks]
            assert [len(part) for part in parts] == [SAMPLES // 2] * 2
            assert sorted(parts[0] + parts[1]) == list(range(SAMPLES))
        assert ranks[0]["epochs"][0] != ranks[0]["epochs"][1]


class TestTransformers:
    def test_its_trainer_trains_and_resumes_natively(self, shards, tmp_path):
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        pytest.importorskip("accelerate", reason="accelerate is not installed")
        dataset = brimful.ShardDataset(shards, {"pixel_values": "jpg", "labels": "cls"}, CROP)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3 * 16 * 16, 2)
                self.seen = []

            def forward(self, pixel_values, labels):
                self.seen.append(labels.tolist())
                return {"loss": self.layer(pixel_values.flatten(1)).mean(), "logits": labels}

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return self.accelerator.prepare(brimful.DataLoader(dataset, 8, shuffle=True, seed=3))

            def get_eval_dataloader(self, eval_dataset=None):
                return self.accelerator.prepare(brimful.DataLoader(dataset, 8))

        def train(epochs, resume=None):
            arguments = transformers.TrainingArguments(
                tmp_path,
                num_train_epochs=epochs,
                use_cpu=True,
                report_to=[],
                disable_tqdm=True,
                save_steps=4,
            )
            model = Model()
            trainer = Trainer(model, arguments)
            trainer.train(resume_from_checkpoint=resume)
            return trainer, model.seen

        trainer, seen = train(3)
        assert trainer.callback_handler.train_dataloader.explain().engine == "native"
        assert [sorted(sum(seen[start : start + 7], [])) for start in (0, 7, 14)] == [list(range(SAMPLES))] * 3
        whole = list(seen)
        assert trainer.evaluate()["eval_loss"] is not None
        assert sum(seen[21:], []) == list(range(SAMPLES))
        _, rest = train(3, resume=str(tmp_path / "checkpoint-12"))
        assert rest == whole[12:]

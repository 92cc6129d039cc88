"""DataLoader in torch's place: the same shapes, types, checks and attributes."""

from __future__ import annotations

import pickle
import warnings

import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES, write_shard

torch = pytest.importorskip("torch")
TorchLoader = torch.utils.data.DataLoader
CROP = T.Compose([T.CenterCrop(32), T.ToTensor()])


@pytest.fixture()
def dataset(pattern):
    return brimful.ShardDataset(pattern, transform=CROP)


def test_it_gives_what_torch_gives_over_an_image_folder(tmp_path, samples, dataset):
    torchvision = pytest.importorskip("torchvision")
    for row in samples:
        label = int(row["cls"])
        (tmp_path / "folder" / f"{label:04d}").mkdir(parents=True)
        (tmp_path / "folder" / f"{label:04d}" / "a.jpg").write_bytes(row["jpg"])
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.CenterCrop(32), torchvision.transforms.ToTensor()]
    )
    arguments = {"batch_size": 10, "shuffle": False, "drop_last": False}
    theirs = TorchLoader(torchvision.datasets.ImageFolder(str(tmp_path / "folder"), transform), **arguments)
    ours = brimful.DataLoader(dataset, **arguments)
    assert len(ours) == len(theirs) == 5
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        for a, b in zip(mine, other, strict=True):
            assert (a.dtype, a.shape, a.stride(), a.device) == (b.dtype, b.shape, b.stride(), b.device)
        assert torch.equal(mine[1], other[1])
        assert (mine[0] - other[0]).abs().amax() <= 4 / 255


def test_it_is_torchs_class_with_torchs_attributes(dataset):
    loader = brimful.DataLoader(dataset, 4, True, num_workers=2, drop_last=True)
    assert isinstance(loader, TorchLoader)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.dataset) == (4, 2, True, dataset)
    assert isinstance(loader.sampler, torch.utils.data.RandomSampler)
    assert loader.prefetch_factor == 2
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 8
    assert brimful.DataLoader[int] is not None


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"shuffle": True, "sampler": [1, 2]},
        {"batch_size": 2, "batch_sampler": [[1]]},
        {"batch_size": None, "drop_last": True},
    ],
)
def test_torchs_checks_hold(dataset, arguments):
    with pytest.raises(ValueError):
        TorchLoader(dataset, **arguments)
    with pytest.raises(ValueError):
        brimful.DataLoader(dataset, **arguments)


def test_options_of_our_own_are_checked(dataset):
    for arguments in (
        {"device": "tpu"},
        {"layout": "HWC"},
        {"dtype": "uint8"},
        {"on_error": "ignore"},
        {"split": "worker"},
        {"rank": 1},
        {"rank": 3, "world_size": 2},
        {"io": "network"},
        {"decoder": "gpu"},
        {"batch_size": 1 << 30},
        {"max_errors": 1.5},
    ):
        with pytest.raises(brimful.InvalidOptionError):
            brimful.DataLoader(dataset, **arguments)
    loader = brimful.DataLoader(dataset, device=torch.device("cpu"), decoder="zune", io="read")
    assert loader.explain().engine == "native"


def test_layouts_and_dtypes(pattern):
    dataset = brimful.ShardDataset(pattern, fields="jpg", transform=T.CenterCrop(32))
    reference = next(iter(brimful.DataLoader(dataset, 4)))
    assert (reference.dtype, tuple(reference.shape)) == (torch.uint8, (4, 3, 32, 32))
    last = next(iter(brimful.DataLoader(dataset, 4, layout="channels_last")))
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, reference)
    rows = next(iter(brimful.DataLoader(dataset, 4, layout="NHWC", dtype=torch.float32)))
    assert torch.equal(rows.permute(0, 3, 1, 2), reference.float())


def test_epochs_differ_and_repeat_under_set_epoch(dataset):
    loader = brimful.DataLoader(dataset, 8, shuffle=True, seed=5)
    labels = lambda: [label for _, batch in loader for label in batch.tolist()]  # noqa: E731
    first, second = labels(), labels()
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second
    loader.set_epoch(0)
    assert labels() == first
    assert labels() == second


def test_the_generator_gives_the_seed(dataset):
    def order(**arguments):
        loader = brimful.DataLoader(dataset, SAMPLES, shuffle=True, **arguments)
        return next(iter(loader))[1].tolist()

    assert order() == order(seed=0)
    assert order(generator=torch.Generator().manual_seed(7)) == order(seed=7) != order()


def test_a_target_transform_runs_on_each_label(pattern):
    dataset = brimful.ShardDataset(pattern, transform=CROP, target_transform=lambda label: float(label) / 2)
    loader = brimful.DataLoader(dataset, 4)
    _, labels = next(iter(loader))
    assert torch.equal(labels, torch.tensor([0, 0.5, 1, 1.5], dtype=torch.float64))
    assert "target_transform" in loader.explain().python


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_has_no_native_form_runs_in_python_behind_the_native_part(pattern, num_workers):
    V1 = pytest.importorskip("torchvision.transforms")
    transform = V1.Compose([V1.CenterCrop(32), V1.Grayscale(3), V1.ToTensor()])
    loader = brimful.DataLoader(brimful.ShardDataset(pattern, transform=transform), 8, num_workers=num_workers)
    batches = list(loader)
    assert [label for _, batch in batches for label in batch.tolist()] == list(range(SAMPLES))
    assert (batches[0][0].dtype, tuple(batches[0][0].shape)) == (torch.float32, (8, 3, 32, 32))
    explanation = loader.explain()
    assert (explanation.engine, explanation.native) == ("native", ("read", "decode", "CenterCrop"))
    assert "Grayscale" in str(explanation)
    assert loader.stats()["python"]["samples"] == SAMPLES
    assert loader.state_dict()["epoch"] == 1


def test_samplers_and_collate_functions_are_honoured(dataset):
    loader = brimful.DataLoader(dataset, 2, sampler=[5, 3, 1], collate_fn=lambda rows: [label for _, label in rows])
    assert list(loader) == [[5, 3], [1]]
    assert brimful.DataLoader(dataset, collate_fn=torch.utils.data.default_collate).explain().engine == "native"
    assert loader.explain().reasons == ()
    assert "list gives the numbers" in str(loader.explain())
    batches = brimful.DataLoader(dataset, batch_sampler=[[1, 2], [0]])
    assert (len(batches), batches.batch_size) == (2, None)
    assert [batch.tolist() for _, batch in batches] == [[1, 2], [0]]


def test_other_data_sets_go_through_torch():
    dataset = torch.utils.data.TensorDataset(torch.arange(6))
    loader = brimful.DataLoader(dataset, 3)
    assert [batch.tolist() for [batch] in loader] == [[0, 1, 2], [3, 4, 5]]
    assert loader.explain().engine == "torch"
    with pytest.warns(UserWarning, match="on_error"):
        brimful.DataLoader(dataset, on_error="skip")


def test_errors_come_through_torchs_worker_processes_and_through_threads(tmp_path):
    shard = write_shard(tmp_path / "a.tar", [{"__key__": b"bad", "jpg": b"no image", "cls": b"0"}])
    loader = torch.utils.data.DataLoader(brimful.ShardDataset(shard, transform=CROP), num_workers=1)
    with pytest.raises(brimful.DecodeError, match="DataLoader worker process 0") as caught:
        list(loader)
    assert "bad" in str(caught.value)
    with pytest.raises(brimful.DecodeError, match="bad") as caught:
        list(brimful.DataLoader(brimful.ShardDataset(shard, transform=CROP), sampler=[0], num_workers=1))
    assert caught.value.kind == "decode"


def test_torchs_own_samplers_are_served_natively(dataset):
    data = torch.utils.data
    for sampler in (data.SequentialSampler(dataset), data.RandomSampler(dataset)):
        loader = brimful.DataLoader(dataset, 8, sampler=sampler)
        assert loader.explain().engine == "native"
        labels = [label for _, batch in loader for label in batch.tolist()]
        assert sorted(labels) == list(range(SAMPLES))
        assert (labels == sorted(labels)) == isinstance(sampler, data.SequentialSampler)
    for sampler in (data.RandomSampler(dataset, num_samples=4), data.RandomSampler(dataset, replacement=True)):
        loader = brimful.DataLoader(dataset, 8, sampler=sampler)
        assert loader.explain().engine == "native"
        assert sum(len(batch) for _, batch in loader) == len(sampler)
    other = data.SequentialSampler(range(3))
    assert [batch.tolist() for _, batch in brimful.DataLoader(dataset, 8, sampler=other)] == [[0, 1, 2]]


def test_a_distributed_sampler_splits_and_its_epoch_counts(dataset):
    def labels(loader):
        return [label for _, batch in loader for label in batch.tolist()]

    samplers = [torch.utils.data.DistributedSampler(dataset, 2, rank, seed=4) for rank in range(2)]
    loaders = [brimful.DataLoader(dataset, 8, sampler=sampler) for sampler in samplers]
    assert [len(loader) for loader in loaders] == [3, 3]
    assert all(loader.explain().engine == "native" for loader in loaders)
    first = [labels(loader) for loader in loaders]
    assert sorted(first[0] + first[1]) == list(range(SAMPLES))
    assert labels(loaders[0]) != first[0]
    samplers[0].set_epoch(3)
    third = labels(loaders[0])
    samplers[1].set_epoch(3)
    assert sorted(third + labels(loaders[1])) == list(range(SAMPLES))
    samplers[0].set_epoch(0)
    assert labels(loaders[0]) == first[0]
    samplers[0].set_epoch(3)
    assert labels(brimful.DataLoader(dataset, 8, sampler=samplers[0])) == third


def test_a_distributed_sampler_that_is_told_the_same_epoch_again_replays_it(dataset):
    def labels(loader):
        return [label for _, batch in loader for label in batch.tolist()]

    sampler = torch.utils.data.DistributedSampler(dataset, 2, 0, seed=4)
    sampler.set_epoch(2)
    loader = brimful.DataLoader(dataset, 8, sampler=sampler)
    second = labels(loader)
    sampler.set_epoch(2)
    assert labels(loader) == second
    assert labels(loader) != second, "not told: the next one"
    assert (sampler.epoch, sorted(sampler)) == (2, sorted(set(sampler)))
    # A loaded place stays for the loop that sets its epoch, once; a copy goes on as the original would.
    state = {**loader.state_dict(), "epoch": 2, "position": 8}
    loader.load_state_dict(state)
    sampler.set_epoch(2)
    assert labels(pickle.loads(pickle.dumps(loader))) == labels(loader) == second[8:]
    sampler.set_epoch(2)
    assert labels(loader) == second
    # One that was not told keeps a loaded place too.
    other = brimful.DataLoader(dataset, 8, sampler=torch.utils.data.DistributedSampler(dataset, 2, 0, seed=4))
    other.load_state_dict(state)
    assert labels(other) == second[8:]


def test_texts_bytes_and_json_are_lists(pattern, samples):
    fields = ("txt", "json", "jpg:bytes", "__key__")
    texts, documents, data, keys = next(iter(brimful.DataLoader(brimful.ShardDataset(pattern, fields), 3)))
    assert texts == ["photo 0", "photo 1", "photo 2"]
    assert documents[2] == {"label": 2, "tags": ["a", 2]}
    assert data == [row["jpg"] for row in samples[:3]]
    assert keys == ["0000", "0001", "0002"]


def test_it_warns_once_in_a_job_of_many_ranks_and_splits_when_told(dataset, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="rank 1 of 2") as caught:
        loader = brimful.DataLoader(dataset, 4)
    assert (len(caught), len(loader)) == (1, 12)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranked = brimful.DataLoader(dataset, 4, split="rank")
        other = brimful.DataLoader(dataset, 4, rank=0, world_size=2)
    seen = [[label for _, batch in part for label in batch.tolist()] for part in (other, ranked)]
    assert (len(ranked), sorted(seen[0] + seen[1])) == (6, list(range(SAMPLES)))


def test_statistics_name_every_stage(dataset):
    loader = brimful.DataLoader(dataset, 8)
    assert loader.stats()["batches"] == 0
    list(loader)
    stats = loader.stats()
    assert (stats["engine"], stats["batches"]) == ("native", 6)
    assert list(stats["stages"]) == ["read", "decode", "transform", "batch", "copy", "wait"]
    assert stats["stages"]["decode"]["items"] >= SAMPLES
    assert stats["time_to_first_batch_s"] > 0
    assert 0 <= stats["stages"]["decode"]["busy_share"] <= 1
    assert stats["decoder_fallbacks"]["process"] == 0
    text = str(loader.explain())
    assert "engine  native" in text
    assert "CenterCrop" in text


def test_an_unstarted_loader_can_be_pickled(dataset):
    loader = pickle.loads(pickle.dumps(brimful.DataLoader(dataset, 8, shuffle=True, seed=3)))
    expected = [batch.tolist() for _, batch in brimful.DataLoader(dataset, 8, shuffle=True, seed=3)]
    assert [batch.tolist() for _, batch in loader] == expected


def test_two_live_iterators_are_independent(dataset):
    loader = brimful.DataLoader(dataset, 16)
    pairs = zip(loader, loader, strict=True)
    assert all(torch.equal(a[1], b[1]) for a, b in pairs)


def test_a_timeout_is_torchs_error(large):
    dataset = brimful.ShardDataset([large] * 100, fields="jpg", transform=T.Resize((16, 16)))
    loader = brimful.DataLoader(dataset, 100, num_workers=1, timeout=0.01)
    with pytest.raises(RuntimeError, match="timed out"):
        next(iter(loader))

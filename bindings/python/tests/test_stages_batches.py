"""Python steps behind the native loader give what torch gives, wherever they run."""

from __future__ import annotations

import functools
import gc
import json
import os
import pickle
import threading
import time

import numpy
import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES, jpeg, photo, sample, write_shard

torch = pytest.importorskip("torch")
V1 = pytest.importorskip("torchvision.transforms")
V2 = pytest.importorskip("torchvision.transforms.v2")

PLACES = ["threads", "processes"]


def grey(image):
    return image.convert("L").convert("RGB")


def halves(label):
    return label / 2


def pairs(samples):
    return [(label, tuple(image.shape)) for image, label in samples]


def loader(pattern, transform, batch_size=7, **options):
    dataset_options = {name: options.pop(name) for name in ("fields", "target_transform") if name in options}
    dataset = brimful.ShardDataset(pattern, transform=transform, **dataset_options)
    return brimful.DataLoader(dataset, batch_size, **{"num_workers": 2, **options})


@pytest.mark.parametrize("stages", PLACES)
def test_batches_equal_torchs(pattern, stages):
    transform = V1.Compose([V1.CenterCrop(32), grey, V1.ToTensor()])
    ours = loader(pattern, transform, stages=stages)
    theirs = torch.utils.data.DataLoader(brimful.ShardDataset(pattern, transform=transform), 7)
    assert ours.explain().engine == "native"
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        for a, b in zip(mine, other, strict=True):
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            assert torch.equal(a, b)
    stats = ours.stats()["python"]
    assert (stats["where"], stats["samples"], stats["failures"]) == (stages, SAMPLES, 0)
    assert ("worker processes" in str(ours.explain())) == (stages == "processes")


@pytest.mark.parametrize("stages", PLACES)
def test_a_collate_function_gets_native_samples(pattern, stages):
    options = {"collate_fn": pairs, "stages": stages, "shuffle": True, "seed": 2}
    rows = [row for batch in loader(pattern, V1.Resize(40), **options) for row in batch]
    assert sorted(label for label, _ in rows) == list(range(SAMPLES))
    assert {shape for _, shape in rows} == {(3, 40, 53)}
    assert rows != sorted(rows)


@pytest.mark.parametrize("stages", PLACES)
def test_images_of_any_size_and_fields_of_any_kind_pass(tmp_path, stages):
    rows = []
    for number in range(9):
        array = numpy.arange(number, dtype=numpy.int16)
        with open(tmp_path / "a.npy", "wb") as file:
            numpy.save(file, array)
        data = {"jpg": jpeg(photo(number, 40 + number, 30)), "npy": (tmp_path / "a.npy").read_bytes()}
        rows.append({"__key__": b"%d" % number, **data, "txt": b"a", "json": b'{"a": [1, null]}', "cls": b"3"})
    shard = write_shard(tmp_path / "a.tar", rows)
    fields = ("jpg", "npy", "txt", "json", "cls", "__key__", "jpg:bytes")
    [batch] = loader(shard, None, 9, fields=fields, collate_fn=list, stages=stages)
    for number, (image, array, text, document, label, key, data) in enumerate(batch):
        assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 30, 40 + number))
        assert torch.equal(array, torch.arange(number, dtype=torch.int16))
        assert (text, document, label, key) == ("a", {"a": [1, None]}, 3, str(number))
        assert data == rows[number]["jpg"]


@pytest.mark.parametrize("stages", PLACES)
@pytest.mark.parametrize("kind", [brimful.DataLoader, brimful.Loader])
def test_a_step_in_python_changes_nothing_about_other_fields(tmp_path, kind, stages):
    documents = [
        {"whole": n, "mixed": n / 2 if n % 2 else n, "flag": n > 1, "list": [n] * n, "any": n or "x"} for n in range(4)
    ]
    rows = [{**sample(n), "json": json.dumps(document).encode()} for n, document in enumerate(documents)]
    shard = write_shard(tmp_path / "a.tar", rows)
    texts = ("txt", "json", "jpg:bytes", "__key__")
    for field in ("cls", *texts, *(f"json:{name}" for name in documents[0])):
        transforms = ([T.CenterCrop(8), T.ToTensor()], [T.CenterCrop(8), T.ToTensor(), abs])
        data = [brimful.ShardDataset(shard, ("jpg", field), transform, index_cache=None) for transform in transforms]
        native, staged = (next(iter(kind(made, 4, stages=stages, num_workers=1)))[1] for made in data)
        assert type(native) is type(staged), field
        if isinstance(native, list):
            assert native == staged, field
        else:
            assert (native.dtype, native.tolist()) == (staged.dtype, staged.tolist()), field


@pytest.mark.parametrize("stages", PLACES)
def test_targets_names_and_single_fields(pattern, stages):
    transform = V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()])
    images, labels = next(iter(loader(pattern, transform, stages=stages, target_transform=halves)))
    assert labels.tolist() == [number / 2 for number in range(7)]
    single = next(iter(loader(pattern, transform, stages=stages, fields="jpg")))
    assert torch.equal(single, images)
    named = next(iter(loader(pattern, transform, stages=stages, fields={"image": "jpg", "label": "cls"})))
    assert torch.equal(named["image"], images)
    assert named["label"].tolist() == list(range(7))


def test_no_batch_size_gives_samples_as_torch_does(pattern):
    transform = V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()])
    dataset = brimful.ShardDataset(pattern, transform=transform)
    ours, theirs = brimful.DataLoader(dataset, None), torch.utils.data.DataLoader(dataset, None)
    assert (len(ours), ours.explain().engine) == (SAMPLES, "native")
    for (image, label), (other, number) in zip(ours, theirs, strict=True):
        assert torch.equal(image, other)
        assert label == number
    assert [row[1] for row in brimful.DataLoader(dataset, None, collate_fn=list)] == list(range(SAMPLES))


@pytest.mark.parametrize("stages", PLACES)
def test_a_user_keeps_batches_as_long_as_it_likes(pattern, stages):
    transform = V1.Compose([V1.CenterCrop(64), grey, V1.ToTensor()])
    held = [images for images, _ in loader(pattern, transform, stages=stages)]
    again = [images.clone() for images, _ in loader(pattern, transform, stages=stages)]
    gc.collect()
    assert len(held) == 7
    assert all(torch.equal(a, b) for a, b in zip(held, again, strict=True))
    assert len({images.data_ptr() for images in held}) == 7
    held[0][:] = 1
    assert not torch.equal(held[1], held[0])


@pytest.mark.parametrize("stages", PLACES)
def test_memory_of_batches_is_used_again(pattern, stages):
    transform = V1.Compose([V1.CenterCrop(64), grey, V1.ToTensor()])
    rows = loader(pattern, transform, 4, num_workers=1, stages=stages)
    addresses = {images.data_ptr() for _ in range(4) for images, _ in rows}
    assert len(addresses) <= 8


@pytest.mark.parametrize("stages", PLACES)
def test_a_run_goes_on_where_its_consumer_stood(pattern, stages):
    transform = V1.Compose([V1.RandomResizedCrop(16), V1.ColorJitter(0.5), V1.ToTensor()])
    options = {"shuffle": True, "seed": 6, "stages": stages}
    whole = loader(pattern, transform, **options)
    expected = [*whole, *whole]
    first = loader(pattern, transform, **options)
    batches = iter(first)
    head = [next(batches) for _ in range(3)]
    state = first.state_dict()
    assert state["position"] == 21
    second = loader(pattern, transform, 5, **options)
    second.load_state_dict(state)
    got = [*head, *second, *second]
    for column in (0, 1):
        assert torch.equal(torch.cat([b[column] for b in got]), torch.cat([b[column] for b in expected]))


def test_epochs_follow_set_epoch_and_live_iterators_are_independent(pattern):
    rows = loader(pattern, V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()]), shuffle=True, stages="threads")
    first, second = [[labels.tolist() for _, labels in rows] for _ in range(2)]
    assert first != second
    rows.set_epoch(0)
    assert [labels.tolist() for _, labels in rows] == first
    rows.set_epoch(0)
    one = iter(rows)
    rows.set_epoch(0)
    both = zip(one, rows, strict=True)
    assert all(torch.equal(a[0], b[0]) for a, b in both)


def test_damage_is_left_out_or_raised_as_natively(tmp_path, samples):
    bad = {**samples[1], "jpg": b"no image"}
    shard = write_shard(tmp_path / "a.tar", [samples[0], bad, samples[2], samples[3]])
    transform = V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()])
    with pytest.raises(brimful.DecodeError, match="0001"):
        list(loader(shard, transform))
    rows = loader(shard, transform, 4, on_error="skip")
    with pytest.warns(brimful.DataWarning, match="0001"):
        [(images, labels)] = list(rows)
    assert (labels.tolist(), len(images)) == ([0, 2, 3], 3)
    assert (rows.stats()["skipped"], len(rows.bad_samples())) == (1, 1)


def test_a_stream_has_python_steps_too(pattern):
    transform = V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()])
    dataset = brimful.ShardDataset(pattern, transform=transform, access="stream")
    rows = brimful.DataLoader(dataset, 7, num_workers=2)
    assert [label for _, labels in rows for label in labels.tolist()] == list(range(SAMPLES))
    with pytest.raises(TypeError, match="length"):
        len(iter(rows))


def test_options_that_images_of_python_cannot_have_are_told(pattern):
    transform = V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()])
    with pytest.warns(UserWarning, match="dtype, layout without effect"):
        loader(pattern, transform, dtype="float16", layout="NHWC")
    with pytest.raises(brimful.InvalidOptionError, match="stages"):
        loader(pattern, transform, stages="fibers")
    with pytest.raises(brimful.InvalidOptionError, match="grey"):
        loader(pattern, transform, decoder="gpu")
    images = next(
        iter(loader(pattern, V1.CenterCrop(16), dtype="float16", layout="NHWC", collate_fn=torch.stack, fields="jpg"))
    )
    assert (images.dtype, tuple(images.shape)) == (torch.float16, (7, 16, 16, 3))


def test_a_loader_with_python_steps_can_be_pickled(pattern):
    rows = loader(pattern, V1.Compose([V1.CenterCrop(16), grey, V1.ToTensor()]), shuffle=True, seed=4)
    copy = pickle.loads(pickle.dumps(rows))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(rows, copy, strict=True))


def test_leaving_early_200_times_leaves_nothing_behind(pattern):
    rows = loader(pattern, V1.Compose([V1.CenterCrop(8), grey, V1.ToTensor()]), 4, stages="threads")

    def once():
        for _ in rows:
            break

    def usage():
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    for _ in range(10):
        once()
    before = usage()
    for _ in range(200):
        once()
    after = usage()
    assert after[0] <= before[0] + 1
    assert after[1] <= before[1]


def test_what_is_made_ahead_is_bounded(pattern):
    made = []
    transform = V1.Compose([V1.CenterCrop(8), lambda image: made.append(1) or image, V1.ToTensor()])
    batches = iter(loader(pattern, transform, 4, stages="threads"))
    next(batches)
    deadline = time.monotonic() + 5
    while len(made) < 16 and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    # Three batches are made ahead of the one that was taken, and no more.
    threading.Event().wait(0.1)
    assert len(made) == 16


def test_slow_python_steps_are_the_bottleneck(pattern):
    transform = V1.Compose([V1.CenterCrop(8), lambda image: time.sleep(0.02) or image, V1.ToTensor()])
    rows = loader(pattern, transform, 4, stages="threads")
    list(rows)
    assert rows.stats()["python"]["busy_s"] > 0.02 * SAMPLES * 0.9
    assert rows._stages.joined({"wall_s": 1e-3, "bottleneck": "consumer"})["bottleneck"] == "python"
    assert rows._stages.joined({"wall_s": 1e9, "bottleneck": "consumer"})["bottleneck"] == "consumer"
    assert rows._stages.joined({"wall_s": 1e-3, "bottleneck": "decode"})["bottleneck"] == "decode"


def test_batches_out_of_order_are_all_there(pattern):
    transform = V1.Compose([V1.CenterCrop(8), grey, V1.ToTensor()])
    rows = loader(pattern, transform, 4, in_order=False, stages="threads", num_workers=3)
    assert sorted(label for _, labels in rows for label in labels.tolist()) == list(range(SAMPLES))
    assert rows.state_dict()["epoch"] == 1


def test_a_timeout_is_torchs_error(pattern):
    transform = V1.Compose([V1.CenterCrop(8), lambda image: threading.Event().wait(1), V1.ToTensor()])
    with pytest.raises(RuntimeError, match="timed out"):
        next(iter(loader(pattern, transform, timeout=0.05, stages="threads")))


def test_worker_init_alone_changes_nothing_where_nothing_runs_in_workers(pattern):
    rows = loader(pattern, V1.Compose([V1.CenterCrop(8), V1.ToTensor()]), worker_init_fn=print)
    assert rows.explain().engine == "native"
    assert "worker_init_fn is not called" in str(rows.explain())


def test_partial_functions_and_v2_transforms_are_named(pattern):
    steps = [V2.CenterCrop(16), functools.partial(grey), V2.ToImage(), V2.ToDtype(torch.float32, scale=True)]
    rows = loader(pattern, V2.Compose(steps))
    assert rows.explain().python == ("grey", "ToImage", "ToDtype", "collate_fn")
    assert next(iter(rows))[0].shape == (7, 3, 16, 16)

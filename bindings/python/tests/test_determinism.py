"""The same seed gives the same batches: for any number of threads, after a resume, on any number of ranks."""

from __future__ import annotations

import json

import numpy
import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES, write_shard

AUGMENT = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()])


@pytest.fixture()
def dataset(pattern):
    return brimful.ShardDataset(pattern, transform=AUGMENT)


def loader(dataset, **options):
    return brimful.Loader(dataset, 5, shuffle=True, seed=11, **options)


def collect(batches):
    return [(images.copy(), labels.tolist()) for images, labels in batches]


def same(left, right):
    assert [labels for _, labels in left] == [labels for _, labels in right]
    for (a, _), (b, _) in zip(left, right, strict=True):
        numpy.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("num_workers", [1, 2, 7])
def test_threads_change_nothing(dataset, num_workers):
    same(collect(loader(dataset)), collect(loader(dataset, num_workers=num_workers)))


def test_augmentation_changes_from_epoch_to_epoch(dataset):
    rows = loader(dataset)
    epochs = [{label: image for images, labels in collect(rows) for image, label in zip(images, labels)} for _ in "ab"]
    assert sum(not numpy.array_equal(epochs[0][n], epochs[1][n]) for n in range(SAMPLES)) > SAMPLES // 2


@pytest.mark.parametrize("taken", [0, 1, 4, 9, 10])
def test_a_resumed_run_equals_an_uninterrupted_one(dataset, taken):
    whole = loader(dataset)
    expected = collect(whole) + collect(whole)
    first = loader(dataset)
    batches = iter(first)
    head = [next(batches) for _ in range(taken)]
    state = json.loads(json.dumps(first.state_dict()))
    del batches
    assert len(json.dumps(state)) < 200
    second = loader(dataset, num_workers=1)
    second.load_state_dict(state)
    assert second.state_dict() == state
    same(collect(head) + collect(second) + collect(second), expected)


def test_the_state_after_an_epoch_begins_the_next(dataset):
    whole = loader(dataset)
    list(whole)
    state = whole.state_dict()
    expected = collect(whole)
    other = loader(dataset)
    other.load_state_dict(state)
    same(collect(other), expected)


def test_on_torchs_machinery_a_state_is_json_and_no_state_of_a_native_loader(dataset):
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.arange(12))
    make = lambda: brimful.DataLoader(rows, 4, shuffle=True, seed=5)  # noqa: E731
    first = make()
    list(first)
    state = json.loads(json.dumps(first.state_dict()))
    second = make()
    second.load_state_dict(state)
    assert [batch.tolist() for [batch] in first] == [batch.tolist() for [batch] in second]
    native = brimful.DataLoader(dataset, 8)
    for one, other in ((native, state), (first, native.state_dict())):
        with pytest.raises(brimful.StateMismatchError, match="explain"):
            one.load_state_dict(other)


def test_a_state_of_something_else_is_refused(dataset, pattern):
    state = loader(dataset).state_dict()
    with pytest.raises(brimful.StateMismatchError, match="seed"):
        brimful.Loader(dataset, 5, shuffle=True, seed=12).load_state_dict(state)
    other = brimful.ShardDataset(pattern.replace("{000..002}", "000"), transform=AUGMENT)
    with pytest.raises(brimful.StateMismatchError, match="shards"):
        loader(other).load_state_dict(state)
    with pytest.raises(brimful.StateMismatchError):
        loader(dataset).load_state_dict({"epoch": 3})


@pytest.mark.parametrize("change", ["a sample less", "a longer text", "another key"])
def test_shards_that_changed_under_a_state_are_told(tmp_path, change):
    rows = [{"__key__": b"%02d" % n, "cls": b"%d" % n, "txt": b"text"} for n in range(12)]
    write_shard(tmp_path / "a.tar", rows)
    make = lambda: brimful.Loader(brimful.ShardDataset(tmp_path / "a.tar", "cls"), 5, shuffle=True)  # noqa: E731
    first = make()
    next(iter(first))
    if change == "a sample less":
        rows.pop()
    elif change == "a longer text":
        rows[3]["txt"] = b"x" * 600
    else:
        rows[3]["__key__"] = b"xx"
    write_shard(tmp_path / "a.tar", rows)
    with pytest.raises(brimful.StateMismatchError, match="shards were changed.*\nhint: start the epoch anew"):
        make().load_state_dict(first.state_dict())


@pytest.mark.parametrize("worlds", [(3, 2, 5), (1, 4, 3), (5, 1, 1)])
def test_a_changing_number_of_ranks_loses_and_repeats_nothing(dataset, worlds):
    seen, state = [], None
    for stage, world_size in enumerate(worlds):
        parts = []
        for rank in range(world_size):
            part = loader(dataset, rank=rank, world_size=world_size)
            if state is not None:
                part.load_state_dict(state)
            batches = iter(part)
            taken = batches if stage == 2 else [next(batches)]
            parts.append([label for _, labels in taken for label in labels.tolist()])
        state = part.state_dict()
        seen += [label for turn in zip(*parts, strict=True) for label in turn]
    # In turns they are in the order of one rank alone; at its end some come twice, so that all have as many.
    whole = [label for _, labels in collect(loader(dataset)) for label in labels]
    assert sorted(set(seen)) == sorted(whole)
    assert len(seen) - SAMPLES < worlds[2]
    assert len(set(seen[:SAMPLES])) == SAMPLES


def test_ranks_share_the_samples_and_can_change_in_number(dataset):
    def ranks(world_size):
        return [loader(dataset, rank=rank, world_size=world_size) for rank in range(world_size)]

    parts = [[label for _, labels in collect(part) for label in labels] for part in ranks(3)]
    assert [len(part) for part in parts] == [16, 16, 16]
    assert sorted(sum(parts, [])) == list(range(SAMPLES))

    seen, states = [], []
    for part in ranks(2):
        batches = iter(part)
        for _ in range(2):
            seen += next(batches)[1].tolist()
        states.append(part.state_dict())
    for part, state in zip(ranks(4), [states[0]] * 4, strict=True):
        part.load_state_dict(state)
        seen += [label for _, labels in part for label in labels.tolist()]
    assert sorted(seen) == list(range(SAMPLES))


def test_a_shuffle_window_keeps_reads_close(dataset):
    window = brimful.Loader(dataset, SAMPLES, shuffle=True, shuffle_window=1)
    [(_, labels)] = list(window)
    shards = [label // 16 for label in labels.tolist()]
    assert sorted(labels.tolist()) == list(range(SAMPLES))
    assert len({tuple(shards[start : start + 16]) for start in (0, 16, 32)}) == 3
    assert all(len(set(shards[start : start + 16])) == 1 for start in (0, 16, 32))


def test_an_epoch_that_is_set_again_is_replayed(dataset):
    rows = loader(dataset)
    rows.set_epoch(3)
    first = collect(rows)
    rows.set_epoch(3)
    same(collect(rows), first)
    state = {**rows.state_dict(), "epoch": 3, "position": 10}
    rows.load_state_dict(state)
    rows.set_epoch(3)
    same(collect(rows), first[2:])
    rows.set_epoch(3)
    same(collect(rows), first)

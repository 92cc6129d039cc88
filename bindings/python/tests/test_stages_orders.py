"""Samplers and batch samplers together with Python steps: their order, their draws, and their place after a resume."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

import brimful
from brimful import transforms as T
from conftest import SAMPLES, write_shard
from test_orders import SAMPLERS, STATEFUL, Broken

torch = pytest.importorskip("torch")
data = torch.utils.data

PLACES = {
    "consumer's threads": {"num_workers": 0},
    "threads": {"num_workers": 2, "stages": "threads"},
    "processes": {"num_workers": 2, "stages": "processes"},
}


def brightened(image):
    """Draws from Python's global generator."""
    return image + random.random()


def numbers_of(samples):
    return [label for _, label in samples]


def fails_on_seven(samples):
    numbers = numbers_of(samples)
    if 7 in numbers:
        raise ArithmeticError("seven")
    return numbers


@pytest.fixture(scope="module")
def plain(pattern):
    transform = T.Compose([T.CenterCrop(8), T.ToTensor()])
    return brimful.ShardDataset(pattern, transform=transform, index_cache=None)


@pytest.fixture(scope="module")
def drawing(pattern):
    transform = T.Compose([T.RandomResizedCrop(8), T.ToTensor(), brightened])
    return brimful.ShardDataset(pattern, transform=transform, index_cache=None)


def listed(batches):
    return [(images.clone(), labels.tolist()) for images, labels in batches]


def assert_same(left, right):
    assert [labels for _, labels in left] == [labels for _, labels in right]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(left, right, strict=True))


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_every_sampler_gives_the_batches_that_it_gives_torch(plain, where):
    for name, make in SAMPLERS.items():
        loaders = []
        for kind, ours in ((brimful.DataLoader, where), (data.DataLoader, {})):
            arguments = {"batch_size": 4, **make(plain)}
            collate_fn = label_of if arguments["batch_size"] is None else numbers_of
            loaders.append(kind(plain, collate_fn=collate_fn, **arguments, **ours))
        mine, theirs = loaders
        assert (mine.explain().engine, len(mine)) == ("native", len(theirs)), name
        for _ in range(2):
            torch.manual_seed(4)
            expected = list(theirs)
            torch.manual_seed(4)
            if hasattr(mine.sampler, "set_epoch"):
                mine.sampler.set_epoch(0)
            assert list(mine) == expected, name


def label_of(sample):
    return sample[1]


@pytest.mark.parametrize("make", STATEFUL.values(), ids=STATEFUL)
def test_it_goes_on_from_every_batch_in_another_place_with_the_same_pixels(drawing, make):
    def loader(where):
        return brimful.DataLoader(drawing, **{"batch_size": 5, **make(drawing)}, seed=2, **PLACES[where])

    torch.manual_seed(5)
    first = loader("threads")
    states, batches = [first.state_dict()], []
    for images, labels in first:
        states.append(first.state_dict())
        batches.append((images.clone(), labels.tolist()))
    for (place, state), where in zip(enumerate(states[:-1]), itertools.cycle(PLACES)):
        torch.manual_seed(99)
        other = loader(where)
        other.load_state_dict(state)
        assert_same(listed(other), batches[place:])


def test_a_sample_that_comes_again_is_augmented_anew_and_alike_everywhere(drawing):
    def images(where):
        return next(iter(brimful.DataLoader(drawing, 4, sampler=[5, 5, 5, 3], seed=1, **where)))[0]

    first, *others = (images(where) for where in PLACES.values())
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_ranks_of_a_distributed_sampler_share_each_epoch_that_they_are_told(plain, where):
    samplers = [data.DistributedSampler(plain, 3, rank, seed=4) for rank in range(3)]
    loaders = [brimful.DataLoader(plain, 5, sampler=s, collate_fn=numbers_of, **where) for s in samplers]
    seen = []
    for epoch in (0, 3, 0):
        parts = []
        for sampler, loader in zip(samplers, loaders, strict=True):
            batches = iter(loader)
            # As trainers do: between the iterator and its first batch.
            sampler.set_epoch(epoch)
            parts.append([label for batch in batches for label in batch])
        assert sorted(sum(parts, [])) == list(range(SAMPLES))
        seen.append(parts)
    assert seen[0] == seen[2] != seen[1]


def test_a_sampler_without_end_is_asked_only_as_far_as_batches_are_made(plain):
    asked = []

    class Endless(data.Sampler):
        def __iter__(self):
            for number in itertools.cycle(range(SAMPLES)):
                asked.append(number)
                yield number

    where = {**PLACES["threads"], "prefetch_factor": 2}
    loader = brimful.DataLoader(plain, 4, sampler=Endless(), collate_fn=numbers_of, **where)
    before = threading.active_count()
    batches = iter(loader)
    for number in range(30):
        assert next(batches) == [(4 * number + row) % SAMPLES for row in range(4)]
        # What is in the making, and what the native threads have ahead of that.
        assert len(asked) <= 4 * (number + 1 + 16)
    del batches
    assert threading.active_count() == before


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_errors_of_samplers_and_of_steps_come_in_their_place_and_the_next_epoch_is_whole(plain, where):
    loader = brimful.DataLoader(plain, 2, sampler=[1, 2, 7, 3], collate_fn=fails_on_seven, **where)
    for _ in range(2):
        got = []
        with pytest.raises(ArithmeticError, match="seven"):
            for batch in loader:
                got.append(batch)
        assert got == [[1, 2]]
    raising = brimful.DataLoader(plain, 2, sampler=Broken(), collate_fn=numbers_of, **where)
    for _ in range(2):
        got = []
        with pytest.raises(LookupError, match="no more"):
            for batch in raising:
                got.append(batch)
        assert got == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_what_replaces_a_bad_sample_is_one_that_the_sampler_gave(tmp_path, samples, where):
    rows = [dict(row) for row in samples[:20]]
    rows[3]["jpg"] = b"no picture"
    transform = T.Compose([T.CenterCrop(8), T.ToTensor(), brightened])
    dataset = brimful.ShardDataset(write_shard(tmp_path / "a.tar", rows), transform=transform, index_cache=None)
    sampler = data.SubsetRandomSampler([1, 3, 5])
    loader = brimful.DataLoader(dataset, 3, sampler=sampler, on_error="replace", **where)
    with pytest.warns(brimful.DataWarning, match="0003"):
        seen = [label for _ in range(4) for _, labels in loader for label in labels.tolist()]
    assert (set(seen), len(seen)) == ({1, 5}, 12)


def test_ready_batches_may_overtake_and_live_iterators_are_independent(plain):
    sampler = list(range(SAMPLES))
    for where in PLACES.values():
        options = {"collate_fn": numbers_of, "in_order": False, **where}
        loader = brimful.DataLoader(plain, 5, sampler=sampler, **options)
        assert sorted(sum(loader, [])) == sampler
        both = brimful.DataLoader(plain, 5, sampler=sampler, collate_fn=numbers_of, **where)
        assert all(one == other for one, other in zip(both, both, strict=True))


def test_worker_processes_live_on_from_epoch_to_epoch_of_a_sampler(plain):
    sampler = data.WeightedRandomSampler([1.0] * SAMPLES, 12)
    options = {**PLACES["processes"], "persistent_workers": True}
    loader = brimful.DataLoader(plain, 4, sampler=sampler, collate_fn=numbers_of, **options)
    pids = []
    for _ in range(3):
        assert len(sum(loader, [])) == 12
        pids.append(loader.stats()["python"]["pids"])
    assert len(pids[0]) == 2 and pids[0] == pids[1] == pids[2]

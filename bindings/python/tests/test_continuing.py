"""On torch's machinery a loader goes on at the batch where its state was taken, as natively."""

from __future__ import annotations

import pickle
import random
import warnings

import pytest

import brimful

torch = pytest.importorskip("torch")
data = torch.utils.data


class Noisy(data.Dataset):
    """Numbers, with something drawn beside each."""

    def __len__(self):
        return 22

    def __getitem__(self, number):
        return number, torch.rand(()).item()


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        yield from range(info.id, 20, info.num_workers) if info else range(20)


LOADERS = {
    "in order": lambda: {"batch_size": 4},
    "seeded": lambda: {"batch_size": 4, "shuffle": True, "seed": 3},
    "a generator": lambda: {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(1)},
    "the shared generator": lambda: {"batch_size": 4, "shuffle": True},
    "Python's generator": lambda: {"batch_size": 4, "sampler": Drawing()},
    "ranks": lambda: {"batch_size": 4, "sampler": data.DistributedSampler(Noisy(), 2, 1, seed=3)},
    "batches": lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(Noisy()), 5, True)},
    "workers": lambda: {"batch_size": 4, "shuffle": True, "num_workers": 2},
    "workers that stay": lambda: {"batch_size": 4, "shuffle": True, "num_workers": 2, "persistent_workers": True},
}


class Drawing(data.Sampler):
    def __len__(self):
        return 22

    def __iter__(self):
        yield from random.sample(range(22), 22)


def numbers(batches):
    return [batch[0].tolist() for batch in batches]


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_it_goes_on_from_every_batch(make):
    torch.manual_seed(5)
    random.seed(5)
    loader = brimful.DataLoader(Noisy(), **make())
    assert loader.explain().engine == "torch"
    list(loader)
    if hasattr(loader.sampler, "set_epoch"):
        loader.set_epoch(1)
    states, batches = [], []
    for batch in loader:
        batches += numbers([batch])
        states.append(loader.state_dict())
        # What a program draws while it trains changes nothing.
        torch.rand(3), random.random()
    assert [state["batches"] for state in states] == list(range(1, len(batches) + 1))
    for place in (0, 1, len(batches) // 2, len(batches) - 1):
        torch.manual_seed(99)
        random.seed(99)
        other = brimful.DataLoader(Noisy(), **make())
        if place == 0:
            # One that has begun before goes on as well.
            next(iter(other))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            other.load_state_dict(pickle.loads(pickle.dumps(states[place])))
        assert other.state_dict() == states[place]
        before = random.getstate()
        running = iter(other)
        assert random.getstate() == before
        assert other.state_dict() == states[place]
        assert numbers(running) == batches[place + 1 :], place
        assert len(numbers(other)) == len(batches)


def test_the_same_numbers_are_drawn_in_workers_after_it_went_on():
    loader = brimful.DataLoader(Noisy(), 4, shuffle=True, num_workers=2, seed=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [drawn.tolist() for _, drawn in batches]
    other = brimful.DataLoader(Noisy(), 4, shuffle=True, num_workers=2, seed=1)
    other.load_state_dict(state)
    assert [drawn.tolist() for _, drawn in other] == rest


def test_after_an_epoch_the_place_is_the_beginning_of_the_next():
    loader = brimful.DataLoader(Noisy(), 4, shuffle=True, seed=3)
    epochs = [numbers(loader) for _ in range(2)]
    loader.set_epoch(0)
    for _ in loader:
        pass
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    other = brimful.DataLoader(Noisy(), 4, shuffle=True, seed=3)
    other.load_state_dict(state)
    assert numbers(other) == epochs[1] != epochs[0]


def test_a_loop_that_was_left_keeps_its_place_and_another_epoch_has_none():
    loader = brimful.DataLoader(Noisy(), 4, shuffle=True, seed=3)
    for count, _ in enumerate(loader):
        if count == 2:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 3)
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert len(numbers(loader)) == 3
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert len(numbers(loader)) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on(workers):
    loader = brimful.DataLoader(Stream(), 3, num_workers=workers)
    batches = iter(loader)
    next(batches), next(batches)
    state, rest = loader.state_dict(), [batch.tolist() for batch in batches]
    other = brimful.DataLoader(Stream(), 3, num_workers=workers)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == rest


def test_a_place_beyond_the_epoch_and_other_states_are_refused():
    loader = brimful.DataLoader(Noisy(), 4)
    state = loader.state_dict()
    loader.load_state_dict({**state, "batches": 9})
    with pytest.raises(brimful.errors.StateMismatchError, match="only 6"):
        iter(loader)
    for wrong in ({"engine": "torch"}, {**state, "batches": -1}, {**state, "draws": ["AAAA"]}):
        with pytest.raises(brimful.errors.StateMismatchError, match="no state"):
            loader.load_state_dict(wrong)
    with pytest.raises(brimful.errors.StateMismatchError, match="natively"):
        loader.load_state_dict({"version": 2, "epoch": 0})

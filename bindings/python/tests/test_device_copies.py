"""Batches that torch copies to a GPU one ahead: the place is that of the batch given, and errors come in their place.

The copies are made by a stand-in, so that no GPU is needed.
"""

from __future__ import annotations

import pytest

import brimful

torch = pytest.importorskip("torch")
data = torch.utils.data

from brimful import AutoBatch, device_copies, prepare  # noqa: E402 - these need torch


class Staying:
    """Copies that stay where they are."""

    def __init__(self, device):
        self.device = device

    def begun(self, batch):
        return batch

    def ready(self, batch):
        return batch


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    monkeypatch.setattr(device_copies, "Copies", Staying, raising=False)


def on_gpu(loader):
    loader._device = "cuda:0"
    return loader


def numbers(batch):
    return batch[0].tolist()


ORDERS = {
    "a batch sampler": lambda: {"batch_sampler": [[5, 1], [2, 3, 40], [7], [9, 8]]},
    "a collate_fn": lambda: {"batch_size": 12, "collate_fn": kept},
}


def kept(rows):
    return data.default_collate(rows)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_resumed_epoch_loses_no_batch(pattern, order):
    def loader():
        return on_gpu(brimful.DataLoader(brimful.ShardDataset(pattern, ["cls"]), **order()))

    first = loader()
    states, batches = [first.state_dict()], []
    for batch in first:
        states.append(first.state_dict())
        batches.append(numbers(batch))
    assert len(batches) == 4
    for place, state in enumerate(states[:-1]):
        other = loader()
        other.load_state_dict(state)
        assert [numbers(batch) for batch in other] == batches[place:]


def test_a_batch_before_an_error_is_given_and_counted():
    loader = on_gpu(brimful.DataLoader(Failing(), batch_size=2))
    batches, seen = iter(loader), []
    with pytest.raises(KeyError, match="five"):
        while True:
            seen.append(next(batches).tolist())
    assert seen == [[0, 1], [2, 3]]


class Failing(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        if number == 5:
            raise KeyError("five")
        return number


def test_a_natively_read_batch_before_an_error_is_given_and_its_place_told(pattern):
    def order():
        yield [1, 2]
        yield [3]
        raise KeyError("no more")

    class Order(data.Sampler):
        def __iter__(self):
            return order()

    loader = on_gpu(brimful.DataLoader(brimful.ShardDataset(pattern, ["cls"]), batch_sampler=Order()))
    batches, positions, seen = iter(loader), [], []
    with pytest.raises(KeyError, match="no more"):
        while True:
            seen.append(numbers(next(batches)))
            positions.append(loader.state_dict()["position"])
    assert seen == [[1, 2], [3]]
    assert positions == [2, 3]


def test_a_batch_may_be_none():
    loader = on_gpu(brimful.DataLoader(list(range(4)), batch_size=2, collate_fn=lambda rows: None))
    assert list(loader) == [None, None]


def test_the_place_is_that_of_the_batch_given_under_accelerate_and_under_a_search(pattern, monkeypatch):
    class State:
        def _add_dataloader(self, loader):
            pass

        _remove_dataloader = _add_dataloader

    monkeypatch.setattr(prepare, "_gradient_state", State)
    for arguments in ({"batch_size": 12}, {"batch_size": AutoBatch(min=12, max=12, multiple_of=12)}):
        loader = brimful.DataLoader(brimful.ShardDataset(pattern, ["cls"]), collate_fn=kept, **arguments)
        on_gpu(loader)
        for announces in (False, True):
            loader.set_epoch(0)
            batches = iter(loader)
            batches = prepare.Announced(loader, batches) if announces else batches
            assert [loader.state_dict()["position"] for _ in batches] == [12, 24, 36, 48]

"""What a loader does when accelerate prepares it, without accelerate: its place goes along."""

from __future__ import annotations

import warnings

import pytest

import brimful
from conftest import SAMPLES

torch = pytest.importorskip("torch")

from brimful import prepare  # noqa: E402 - needs torch
from brimful.ranks import WHOLE, Split  # noqa: E402 - one block


@pytest.fixture(autouse=True)
def gradient_state(monkeypatch):
    """accelerate's, which is told of every loader that is iterated."""

    class Heard:
        def _add_dataloader(self, loader):
            pass

        _remove_dataloader = _add_dataloader

    monkeypatch.setattr(prepare, "_gradient_state", Heard)


def loader(pattern, **options):
    return brimful.DataLoader(brimful.ShardDataset(pattern, ["cls"]), 6, shuffle=True, **options)


def prepared(loader, split=WHOLE, seed=None):
    loader._prepare(prepare.Preparation(split, splits_batches=False, device=None, seed=seed, saves_state=False))
    return loader


def numbers(batches):
    return [number for (batch,) in batches for number in batch.tolist()]


def state_after(loader, batches):
    running = iter(loader)
    seen = numbers([next(running) for _ in range(batches)])
    return seen, loader.state_dict()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("epochs", [0, 2])
def test_a_place_that_was_loaded_before_is_kept(pattern, ranks, epochs):
    first = loader(pattern)
    for _ in range(epochs):
        list(first)
    seen, state = state_after(first, 3)
    assert state["epoch"] == epochs
    for rank in range(ranks):
        other = loader(pattern)
        other.load_state_dict(state)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            prepared(other, Split(rank, ranks))
            assert other.state_dict()["epoch"] == state["epoch"]
        seen += numbers(other)
    assert sorted(seen) == list(range(SAMPLES))


def test_a_place_that_does_not_fit_what_is_asked_for_is_told(pattern):
    _, state = state_after(loader(pattern), 3)
    other = loader(pattern)
    other.load_state_dict(state)
    with pytest.warns(UserWarning, match="begins the epoch anew"):
        prepared(other, seed=5)
    assert other.state_dict()["position"] == 0

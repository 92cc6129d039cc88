"""Several data sets as one: in turns, or drawn by chance."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .pytorch import IterableDataset


def round_robin_shortest(*sources: Iterator[Any]) -> Iterator[Any]:
    """From each source in turn, until one has no more."""
    for source in itertools.cycle(sources):
        try:
            sample = next(source)
        except StopIteration:
            return
        yield sample


def round_robin_longest(*sources: Iterator[Any]) -> Iterator[Any]:
    """From each source in turn, until none has more."""
    left = list(sources)
    place = 0
    while left:
        place %= len(left)
        try:
            sample = next(left[place])
        except StopIteration:
            del left[place]
            continue
        place += 1
        yield sample


def random_samples(
    sources: Sequence[Iterator[Any]], probs: Sequence[float] | None = None, longest: bool = False
) -> Iterator[Any]:
    """From sources by chance, until one has no more, or with `longest` until none has."""
    sources = list(sources)
    weights = [1.0] * len(sources) if probs is None else list(probs)
    if len(weights) != len(sources):
        raise ValueError(f"{len(weights)} probabilities for {len(sources)} data sets; give one for each")
    while sources and sum(weights) > 0:
        sums = list(itertools.accumulate(weights))
        place = min(bisect.bisect_left(sums, random.random() * sums[-1]), len(sources) - 1)
        try:
            sample = next(sources[place])
        except StopIteration:
            if not longest:
                return
            del sources[place], weights[place]
            continue
        yield sample


class RoundRobin(IterableDataset):
    """A sample from each data set in turn; with `longest` until none has more."""

    def __init__(self, datasets: Sequence[Iterable[Any]], longest: bool = False) -> None:
        super().__init__()
        self.datasets = datasets
        self.longest = longest

    def __iter__(self) -> Iterator[Any]:
        sources = [iter(dataset) for dataset in self.datasets]
        return round_robin_longest(*sources) if self.longest else round_robin_shortest(*sources)


class RandomMix(IterableDataset):
    """Samples from data sets by chance, each with its probability; with `longest` until none has more."""

    def __init__(
        self, datasets: Sequence[Iterable[Any]], probs: Sequence[float] | None = None, longest: bool = False
    ) -> None:
        super().__init__()
        self.datasets = datasets
        self.probs = probs
        self.longest = longest

    def __iter__(self) -> Iterator[Any]:
        return random_samples([iter(dataset) for dataset in self.datasets], self.probs, self.longest)

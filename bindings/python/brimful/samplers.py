"""Samplers of torch whose meaning the native side can keep: in order, shuffled, split among ranks.

The order of a shuffle is the native one, not torch's; what is drawn, by whom and in which epoch is the same. A loader
that was given no sampler has one of the kinds below: frameworks look at it, tell it epochs, and list it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from .ranks import WHOLE, Split


class SeenEpoch(int):
    """The epoch of a sampler after a loader has looked at it: equal to the number it was, but recognised.

    A sampler says which epoch it was told, not when; the number in its place tells apart a sampler that was told the
    same epoch again, which means that epoch once more, from one that was told nothing since.
    """

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        # A program may save its sampler, and load it where nobody knows this class.
        return int, (int(self),)


# What a seen epoch is saved as, which torch.load takes for harmless only where it is told so.
torch.serialization.add_safe_globals([int])


@dataclass(frozen=True)
class Order:
    """What a sampler asks for."""

    shuffle: bool
    seed: int | None = None
    split: Split = WHOLE
    remainder: str = "pad"


class Planned:
    """The native order of a loader as a sampler, in the epoch that it was told or else that the loader is in."""

    epoch = 0
    order: Callable[[int | None], list[int]] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the one that the loader begins next, as a `DistributedSampler` does."""
        self.epoch = int(epoch)

    def __iter__(self) -> Iterator[int]:
        if self.order is None:
            return super().__iter__()
        return iter(self.order(None if isinstance(self.epoch, SeenEpoch) else self.epoch))


class StoredSampler(Planned, SequentialSampler):
    """All samples as they lie in the shards."""


class ShuffledSampler(Planned, RandomSampler):
    """All samples, shuffled."""


class RankSampler(Planned, DistributedSampler):
    """This rank's share."""


class PlannedBatches(BatchSampler):
    """Batches of a planned sampler, with what accelerate and Transformers look for in those of their own."""

    even_batches = True

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)


def own_sampler(dataset: Any, order: Order, generator: Any) -> Planned:
    """The sampler of a loader that was given none."""
    if order.split.world_size > 1:
        drops = order.remainder == "drop"
        seed = 0 if order.seed is None else order.seed
        rank, world_size = order.split
        return RankSampler(dataset, world_size, rank, shuffle=order.shuffle, seed=seed, drop_last=drops)
    return ShuffledSampler(dataset, generator=generator) if order.shuffle else StoredSampler(dataset)


def is_planned(sampler: Any) -> bool:
    """Whether the native order is this sampler's own, number by number, and not only in what it draws."""
    return type(sampler) in (SequentialSampler, StoredSampler, ShuffledSampler, RankSampler)


def is_shuffled_share(sampler: Any) -> bool:
    """Whether this is torch's sampler of a rank's share of a shuffle, for which any shuffle would do."""
    return type(sampler) is DistributedSampler and sampler.shuffle


def native_order(sampler: Any, datasets: tuple[Any, ...]) -> Order | None:
    """The order that `sampler` stands for; None for samplers of other kinds, or over something else."""
    source = getattr(sampler, "data_source", getattr(sampler, "dataset", None))
    if not any(source is dataset for dataset in datasets):
        return None
    if type(sampler) in (SequentialSampler, StoredSampler):
        return Order(shuffle=False)
    if type(sampler) in (RandomSampler, ShuffledSampler):
        is_whole = not sampler.replacement and sampler._num_samples is None
        generator = sampler.generator
        return Order(shuffle=True, seed=generator and generator.initial_seed()) if is_whole else None
    if type(sampler) in (DistributedSampler, RankSampler):
        split = Split(sampler.rank, sampler.num_replicas)
        return Order(sampler.shuffle, sampler.seed, split, "drop" if sampler.drop_last else "pad")
    return None


def seen_epoch(sampler: Any) -> SeenEpoch | None:
    """The epoch of a sampler that has one, marked as seen; the same object until the sampler is told another time."""
    epoch = getattr(sampler, "epoch", None)
    if not isinstance(epoch, int):
        return None
    if not isinstance(epoch, SeenEpoch):
        epoch = SeenEpoch(epoch)
        try:
            sampler.epoch = epoch
        except AttributeError:
            # It can be read only: nobody could tell it another one.
            return None
    return epoch

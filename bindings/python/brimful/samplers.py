"""Samplers of torch whose meaning the native side can keep: in order, shuffled, split among ranks.

The order of a shuffle is the native one, not torch's; what is drawn, by whom and in which epoch is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

from .ranks import WHOLE, Split


class SeenEpoch(int):
    """The epoch of a sampler after a loader has looked at it: equal to the number it was, but recognised.

    A sampler says which epoch it was told, not when; the number in its place tells apart a sampler that was told the
    same epoch again, which means that epoch once more, from one that was told nothing since.
    """


@dataclass(frozen=True)
class Order:
    """What a sampler asks for."""

    shuffle: bool
    seed: int | None = None
    split: Split = WHOLE
    remainder: str = "pad"


def native_order(sampler: Any, dataset: Any) -> Order | None:
    """The order that `sampler` stands for; None for samplers of other kinds, or over something else."""
    if type(sampler) is SequentialSampler and sampler.data_source is dataset:
        return Order(shuffle=False)
    if type(sampler) is RandomSampler and sampler.data_source is dataset:
        is_whole = not sampler.replacement and sampler._num_samples is None
        generator = sampler.generator
        return Order(shuffle=True, seed=generator and generator.initial_seed()) if is_whole else None
    if type(sampler) is DistributedSampler and sampler.dataset is dataset:
        split = Split(sampler.rank, sampler.num_replicas)
        return Order(sampler.shuffle, sampler.seed, split, "drop" if sampler.drop_last else "pad")
    return None


def seen_epoch(sampler: Any) -> SeenEpoch | None:
    """The epoch of a sampler that has one, marked as seen; the same object until the sampler is told another time."""
    epoch = getattr(sampler, "epoch", None)
    if not isinstance(epoch, int):
        return None
    if not isinstance(epoch, SeenEpoch):
        epoch = sampler.epoch = SeenEpoch(epoch)
    return epoch

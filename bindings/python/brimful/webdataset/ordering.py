"""Stages that change which samples come, and in which order; they look into none."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

from . import workers
from .stages import PipelineStage, pipelinefilter
from .tariterators import is_strict


def pick(buf: list[Any], rng: random.Random) -> Any:
    """Takes a random item out of a list."""
    place = rng.randint(0, len(buf) - 1)
    buf[place], buf[-1] = buf[-1], buf[place]
    return buf.pop()


def _shuffle(
    data: Iterable[Any],
    bufsize: int = 1000,
    initial: int = 100,
    rng: random.Random | None = None,
    seed: Any = None,
    handler: Any = None,
) -> Iterator[Any]:
    """The items in another order: each is drawn from a buffer.

    Args:
        data: the items.
        bufsize: items in the buffer.
        initial: items in it before the first is drawn.
        rng: what draws.
        seed: of what draws, instead; without both, process and time.
    """
    assert rng is None or seed is None, "rng draws and seed makes what draws; give one of them"
    if rng is None:
        rng = random.Random(seed if seed is not None else int((os.getpid() + time.time()) * 1e9))
    initial = min(initial, bufsize)
    data = iter(data)
    buf: list[Any] = []
    for item in data:
        buf.append(item)
        if len(buf) < bufsize:
            # The buffer grows while items are already drawn from it.
            buf.extend(itertools.islice(data, 1))
        if len(buf) >= initial:
            yield pick(buf, rng)
    while buf:
        yield pick(buf, rng)


class shuffle(PipelineStage):  # noqa: N801 - the name of the stage
    """Draws items from a buffer; with a seed the order is another one each epoch, and the same in each run.

    Args:
        bufsize: items in the buffer.
        initial: items in it before the first is drawn.
        rng: what draws.
        seed: of what draws, instead.
        compat: "strict" for the same order each epoch where a seed is given.
    """

    def __init__(
        self,
        bufsize: int = 1000,
        initial: int = 100,
        rng: random.Random | None = None,
        seed: Any = None,
        handler: Any = None,
        compat: str | None = None,
    ) -> None:
        self.bufsize = bufsize
        self.initial = initial
        self.rng = rng
        self.seed = seed
        self.compat = compat
        self.epoch = -1
        is_strict(compat)

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        self.epoch += 1
        if self.seed is None or is_strict(self.compat):
            return _shuffle(src, self.bufsize, self.initial, self.rng, self.seed)
        return _shuffle(src, self.bufsize, self.initial, generator(self.seed, self.epoch))

    __call__ = run

    def __repr__(self) -> str:
        return f"<shuffle({self.bufsize}, initial={self.initial}, seed={self.seed})>"


class detshuffle(PipelineStage):  # noqa: N801 - the name of the stage
    """Draws items from a buffer, in an order that derives from `seed` and the number of times it has run.

    In worker processes, which begin to count anew each epoch, it derives from torch's seed as well.

    Args:
        bufsize: items in the buffer.
        initial: items in it before the first is drawn.
        seed: of what draws.
        epoch: the epoch before the first.
        compat: "strict" to count epochs alone.
    """

    def __init__(
        self, bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1, compat: str | None = None
    ) -> None:
        self.bufsize = bufsize
        self.initial = initial
        self.seed = seed
        self.epoch = epoch
        self.compat = compat
        is_strict(compat)

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        self.epoch += 1
        if is_strict(self.compat) or workers.round_offset() == 0:
            rng = random.Random(int(self.seed) + self.epoch)
        else:
            rng = generator(self.seed, self.epoch)
        return _shuffle(src, self.bufsize, self.initial, rng)

    def __repr__(self) -> str:
        return f"<detshuffle({self.bufsize}, initial={self.initial}, seed={self.seed})>"


def generator(seed: Any, epoch: int) -> random.Random:
    """What draws in one epoch; in the first one outside a worker it is that of the seed alone."""
    offset = workers.round_offset()
    return random.Random(seed if epoch == 0 and offset == 0 else f"{seed} {offset} {epoch}")


def _rsample(data: Iterable[Any], p: float = 0.5) -> Iterator[Any]:
    """Each item with probability `p`."""
    assert 0.0 <= p <= 1.0, f"p={p} is no probability; it lies between 0 and 1"
    for item in data:
        if random.random() < p:
            yield item


def _select(data: Iterable[Any], predicate: Any) -> Iterator[Any]:
    """The items for which `predicate` is true."""
    for item in data:
        if predicate(item):
            yield item


rsample = pipelinefilter(_rsample)
select = pipelinefilter(_select)
slice = pipelinefilter(itertools.islice)

"""Orders that samplers and batch samplers of torch give, number by number: they drive the native engine.

The sampler is asked on the consumer's thread and only a few batches ahead, so that it may be endless; where it raises,
its error comes in its place, after the batches before it. How numbers become batches of samples is the engine's work.
"""

from __future__ import annotations

import itertools
import operator
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DistributedSampler

from . import _native
from .errors import StateMismatchError
from .generators import Draws, generators_of


class Batching:
    """How numbers come in batches: a user's batch sampler, or a sampler whose numbers are taken so many at a time.

    Args:
        sampler: gives numbers; None where `batch_sampler` gives lists of them.
        batch_sampler: gives lists of numbers.
        batch_size: rows of a batch of the sampler's numbers.
        drop_last: whether a last batch that is not full is left out.
        generator: the loader's, from which torch's own samplers may draw.
    """

    def __init__(
        self, sampler: Any, batch_sampler: Any, batch_size: int, drop_last: bool, generator: torch.Generator | None
    ) -> None:
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._generator = generator

    @property
    def is_distributed(self) -> bool:
        """Whether the sampler is torch's `DistributedSampler`, whose order is a function of its seed and the epoch."""
        return type(self.sampler) is DistributedSampler

    def batches(self, epoch: int, consumed: int, position: int) -> tuple[Iterator[list[int]], Iterator[list[int]]]:
        """The batches of an epoch: those that were delivered before, and those that are to come.

        Args:
            epoch: its number.
            consumed: samples that all ranks together had before their number changed.
            position: samples that this rank has had since then.
        """
        if self.batch_sampler is not None:
            batches = map(list, self.batch_sampler)
            return _while_fewer(batches, position), batches
        numbers = iter(self._numbers(epoch, consumed))
        before = self._chunks(itertools.islice(numbers, position), drop_last=False)
        return before, self._chunks(numbers, self.drop_last)

    def _chunks(self, numbers: Iterator[int], drop_last: bool) -> Iterator[list[int]]:
        # The size may change from batch to batch.
        while chunk := list(itertools.islice(numbers, size := self.batch_size)):
            if len(chunk) == size or not drop_last:
                yield chunk

    def generators(self) -> list[Any]:
        """All that the order may be drawn from: shared generators, the loader's, and those of the samplers."""
        nested = getattr(self.batch_sampler, "sampler", None)
        return generators_of((self._generator, self.sampler, self.batch_sampler, nested))

    def _numbers(self, epoch: int, consumed: int) -> Iterable[int]:
        if not self.is_distributed:
            return self.sampler
        sampler = self.sampler
        if consumed == 0:
            told, sampler.epoch = sampler.epoch, epoch
            try:
                return iter(sampler)
            finally:
                sampler.epoch = told
        whole = DistributedSampler(sampler.dataset, 1, 0, sampler.shuffle, sampler.seed)
        whole.set_epoch(epoch)
        return _share(list(whole)[consumed:], sampler)


def _share(left: list[int], sampler: DistributedSampler) -> list[int]:
    """What is left of an epoch, shared out as the sampler shares a whole one."""
    ranks = sampler.num_replicas
    if sampler.drop_last:
        del left[len(left) // ranks * ranks :]
    elif left:
        left += itertools.islice(itertools.cycle(left), -len(left) % ranks)
    return left[sampler.rank :: ranks]


def _while_fewer(batches: Iterator[list[int]], samples: int) -> Iterator[list[int]]:
    """Batches until there were so many samples."""
    while samples > 0 and (batch := next(batches, None)) is not None:
        samples -= len(batch)
        yield batch


# Batches that a consumer may be behind by: what frameworks and copies to a GPU take ahead.
_BEHIND = 8


class Driver:
    """One epoch's order on its way into a native epoch.

    Args:
        epoch: the native epoch, which takes numbers.
        samples: how many samples there are, for numbers that count from the end.
        batching: where the numbers come from.
        draws: the generators' states to begin with, for an epoch that is taken up again.
        digest: of the numbers that such an epoch gave before, if that is known.
    """

    def __init__(
        self, epoch: _native.Epoch, samples: int, batching: Batching, draws: Draws | None, digest: int | None = None
    ) -> None:
        self.failure: Exception | None = None
        self.number = epoch.number
        self._epoch = epoch
        # Positions that batches end at, and the digests of all numbers up to there; the oldest are forgotten.
        self._ends = deque([(0, 0)])
        self._delivered = 0
        self._samples = samples
        self._batches: Iterator[list[int]] = iter(())
        self._has_ended = False
        if draws is None:
            self._begin(batching, None)
        else:
            with draws:
                self._begin(batching, digest)

    def digest(self, position: int) -> int | None:
        """Tells apart what other numbers the first `position` might have been; None where no batch ends there."""
        return next((digest for end, digest in self._ends if end == position), None)

    def delivered(self) -> None:
        """The consumer has another batch."""
        self._delivered += 1
        if self._delivered > _BEHIND and len(self._ends) > 1:
            self._ends.popleft()
        self.fill()

    def fill(self) -> None:
        """Gives as many batches as there is room for."""
        while not self._has_ended and self._epoch.has_room():
            try:
                batch = next(self._batches, None)
                if batch is not None:
                    self._epoch.give(self._noted(batch))
                    continue
            except Exception as error:
                self.failure = error
            self._has_ended = True
            self._epoch.end()

    def _begin(self, batching: Batching, digest: int | None) -> None:
        try:
            before, batches = batching.batches(self._epoch.number, *self._epoch.start)
            for batch in before:
                self._epoch.pass_over(self._noted(batch))
                self._ends.popleft()
            if digest not in (None, self._ends[-1][1]):
                raise StateMismatchError(
                    "the sampler gives another order than in the run that was saved, so samples would be lost or come "
                    "twice",
                    hint="give it state_dict() and load_state_dict(), or let it draw from a seed and set_epoch()",
                )
            self._batches = batches
        except Exception as error:
            self.failure = error
        # Most samplers draw all that they draw when they are asked first.
        self.fill()

    def _noted(self, batch: Iterable[Any]) -> list[int]:
        numbers = self._checked(batch)
        end, digest = self._ends[-1]
        self._ends.append((end + len(numbers), zlib.crc32(array("q", numbers).tobytes(), digest)))
        return numbers

    def _checked(self, batch: Iterable[Any]) -> list[int]:
        numbers = list(map(operator.index, batch))
        if not numbers:
            return numbers
        least, most = min(numbers), max(numbers)
        if most >= self._samples or least < -self._samples:
            wrong = most if most >= self._samples else least
            raise IndexError(f"the sampler gave {wrong}, and the data set has {self._samples} samples")
        return numbers if least >= 0 else [number + self._samples if number < 0 else number for number in numbers]


class Begun(NamedTuple):
    """An epoch that was begun, and whose order was not asked for yet.

    Attributes:
        drive: begins to ask for the order.
        batches: what the engine makes of it.
        is_stale: asked once, before the first batch: whether another epoch is wanted by now.
    """

    drive: Callable[[], Driver]
    batches: Iterator[Any]
    is_stale: Callable[[], bool]


class BegunLoader:
    """A native loader whose next epoch is the one given: for those who begin it themselves."""

    def __init__(self, native: _native.Loader, epoch: _native.Epoch) -> None:
        self._native = native
        self._epoch = epoch

    def epoch(self) -> _native.Epoch:
        return self._epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)


class Driven(Iterator[Any]):
    """The batches of one epoch whose order a sampler gives.

    Args:
        begin: begins an epoch.
        length: of the epoch in batches, if it has one.
    """

    def __init__(
        self,
        begin: Callable[[], Begun],
        length: Callable[[], int],
    ) -> None:
        self._begin = begin
        self._length = length
        self._begun = begin()
        self._driver: Driver | None = None

    def __next__(self) -> Any:
        if self._driver is None:
            if self._begun.is_stale():
                self._begun = self._begin()
            self._driver = self._begun.drive()
        try:
            batch = next(self._begun.batches)
        except StopIteration:
            failure, self._driver.failure = self._driver.failure, None
            if failure is not None:
                raise failure from None
            raise
        self._driver.delivered()
        return batch

    def __len__(self) -> int:
        return self._length()


def batching_of(
    sampler: Any, batch_sampler: Any, batch_size: int | None, drop_last: bool, generator: torch.Generator | None
) -> Batching:
    """How these arguments of a loader make batches of numbers."""
    if batch_sampler is not None:
        return Batching(None, batch_sampler, _rows_of(batch_sampler), False, generator)
    return Batching(sampler, None, batch_size or 1, drop_last, generator)


# What is planned for where a batch sampler does not say how large its batches are.
_ROWS_UNKNOWN = 32


def _rows_of(batch_sampler: Any) -> int:
    rows = getattr(batch_sampler, "batch_size", None)
    return rows if isinstance(rows, int) and not isinstance(rows, bool) and 0 < rows <= 1 << 20 else _ROWS_UNKNOWN


def has_known_rows(batch_sampler: Any) -> bool:
    """Whether no batch of it can be larger than it says."""
    return type(batch_sampler) is BatchSampler

"""Batches whose size changes between steps: handed over, cut where they must be, and counted into optimiser steps."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from .autobatch import Tuning
from .engine import place_of
from .errors import InvalidOptionError, LimitError


class AdaptiveBatchSampler:
    """Numbers of samples in batches of the size that a search wants at the moment; for torch's machinery."""

    def __init__(self, sampler: Any, drop_last: bool) -> None:
        self.sampler = sampler
        self.drop_last = drop_last
        self.batch_size = 1

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        size = self.batch_size
        for number in self.sampler:
            batch.append(number)
            if len(batch) >= size:
                yield batch
                batch, size = [], self.batch_size
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        samples = len(self.sampler)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


class Steps:
    """Where the program is in its optimiser step."""

    def __init__(self, per_rank: int | None) -> None:
        self._per_rank = per_rank
        self.rows = 0
        self.share = 1.0
        self.is_last = True

    def room(self) -> int | None:
        """Samples that are still missing in this step; None where a step is one batch."""
        return None if self._per_rank is None else self._per_rank - self.rows

    def take(self, rows: int, is_epochs_last: bool) -> None:
        """The program gets a micro-batch."""
        if self._per_rank is None:
            return
        self.rows += rows
        self.share = rows / self._per_rank
        self.is_last = self.rows >= self._per_rank or is_epochs_last
        if self.is_last:
            self.rows = 0

    def begin_anew(self) -> None:
        """What the step had so far is thrown away, or the epoch is over."""
        self.rows = 0
        self.is_last = True


class Adaptive(Iterator[Any]):
    """The batches of an epoch under a search.

    A batch is cut, without a copy, where it would not fit in memory or would reach beyond its optimiser step; the rest
    comes next. Under a global batch one batch is taken ahead, so that the last of an epoch is known.

    Args:
        samples: samples of the epoch from here on, None if unknown; with `drop_last` only whole steps are given.

    Attributes:
        place: where the program stands, or None where it has all that was taken.
    """

    def __init__(
        self, loader: Any, batches: Iterator[Any], tuning: Tuning, steps: Steps, samples: int | None, drop_last: bool
    ) -> None:
        self._loader = loader
        self._batches = batches
        self._tuning = tuning
        self._steps = steps
        self._pieces: deque[Any] = deque()
        self._ahead: Any = None
        self._is_over = False
        self._steps_left: int | None = None
        if drop_last and samples is not None and tuning.per_rank is not None:
            self._steps_left = samples // tuning.per_rank
        self.current: Any = None
        self.place: Any = None
        steps.begin_anew()
        tuning.pause()

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        self.current = None
        if self._pieces:
            # Pieces of a batch are no steps of their own: only whole batches are measured.
            self._tuning.pause()
        else:
            self._tuning.asks_for_batch()
        if self._steps_left == 0 and self._steps.rows == 0:
            self._drain()
        # While a batch is cut up, the place is the one before it.
        before = self._place() if self.place is None else self.place
        batch = self._take()
        if batch is None:
            self._stand_at(None)
            self._tuning.pause()
            self._steps.begin_anew()
            raise StopIteration
        rows = rows_of(batch)
        most = self._most()
        if most is not None and rows > most:
            self._pieces.appendleft(part_of(batch, most, rows))
            batch, rows = part_of(batch, 0, most), most
        self._tuning.has_batch(rows)
        after = self._place()
        is_last = self._steps.room() is not None and not self._pieces and self._look_ahead()
        self._stand_at(before if self._pieces else after if self._ahead is not None else None)
        self._steps.take(rows, is_last)
        if self._steps.is_last and self._steps_left is not None:
            self._steps_left -= 1
        self.current = batch
        return batch

    def put_back(self) -> None:
        """The step of the present batch failed: it comes again, in pieces that fit."""
        if self.current is not None:
            self._pieces.appendleft(self.current)
            self.current = None
            if self._steps_left is not None and self._steps.is_last:
                self._steps_left += 1
        self._steps.begin_anew()

    def _most(self) -> int | None:
        """Rows that the next batch may have."""
        bounds = [self._steps.room()]
        if self._tuning.ceiling is not None:
            # What is under way may be larger than what is wanted since memory ran out.
            bounds.append(max(1, min(self._tuning.ceiling - 1, self._tuning.wanted)))
        known = [bound for bound in bounds if bound is not None]
        return min(known) if known else None

    def _take(self) -> Any:
        if self._pieces:
            return self._pieces.popleft()
        if self._ahead is not None:
            batch, self._ahead = self._ahead, None
            return batch
        return None if self._is_over else self._next()

    def _next(self) -> Any:
        batch = next(self._batches, None)
        self._is_over = batch is None
        return batch

    def _look_ahead(self) -> bool:
        """Whether nothing comes after the batch in hand."""
        if self._ahead is None and not self._is_over:
            self._ahead = self._next()
        return self._ahead is None

    @property
    def _source(self) -> Any:
        """What knows how far batches were made."""
        engine = self._loader._engine
        return self._loader._progress if engine is None else engine

    def _place(self) -> Any:
        """Where the loader stands, where it may be ahead of the program."""
        source = self._source
        if source is None or (self._tuning.per_rank is None and self._tuning.ceiling is None):
            return None
        return place_of(self._batches, source)

    def _stand_at(self, place: Any) -> None:
        """Makes `place` what `state_dict` tells; None where the program has all that came."""
        self.place = getattr(self._batches, "place", None) if place is None else place
        if self._source is not None:
            self._source.behind = self.place

    def _drain(self) -> None:
        """Lets the rest of the epoch pass: it does not make a whole step."""
        self._pieces.clear()
        self._ahead = None
        while not self._is_over:
            self._next()


class OomGuard:
    """`with loader.oom_guard():` around a training step.

    A step that runs out of memory does not end the run: the batch comes again in smaller pieces, and sizes from there
    on are not run again. What the step had computed is lost, so everything from zeroing gradients to the optimiser's
    step belongs inside; with `optimizer` given its gradients are set to None after a failure.

    In a job of several ranks the others wait inside the step's collective calls for one that failed, and nothing can be
    mended there: the error is raised with the size that is safe. With `agree=True`, for steps without collective calls,
    ranks compare after each step, and all of them repeat it.
    """

    def __init__(self, adaptive: Adaptive | None, tuning: Tuning, optimizer: Any, agree: bool) -> None:
        self._adaptive = adaptive
        self._tuning = tuning
        self._optimizer = optimizer
        self._agree = agree and tuning.world_size > 1
        self.failed = False

    def __enter__(self) -> OomGuard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: Any) -> bool:
        is_ours = error is not None and is_out_of_memory(error)
        if error is not None and not is_ours:
            return False
        current = None if self._adaptive is None else self._adaptive.current
        rows = 0 if current is None else rows_of(current)
        failed = rows if is_ours else None
        if self._agree:
            failed = self._tuning.agree_on_failure(failed)
        if failed is None:
            return False
        if current is None:
            return False
        if self._tuning.world_size > 1 and not self._agree:
            raise LimitError(
                f"a step of {rows} samples ran out of memory on this rank, while other ranks wait for it in the step",
                hint=f"start again with AutoBatch(max={max(1, rows * 3 // 4)}), or raise headroom",
            ) from error
        self._recover(error, failed)
        return True

    def _recover(self, error: BaseException | None, failed: int) -> None:
        self.failed = True
        if error is not None:
            # Frames of the failed step hold its tensors.
            traceback.clear_frames(error.__traceback__)
        if self._optimizer is not None:
            self._optimizer.zero_grad(set_to_none=True)
        self._adaptive.put_back()
        self._tuning.ran_out_of_memory(failed)
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that device memory ran out."""
    import torch

    kinds = tuple(
        kind for kind in (getattr(torch, "OutOfMemoryError", None), torch.cuda.OutOfMemoryError) if kind is not None
    )
    return isinstance(error, kinds) or (isinstance(error, RuntimeError) and "out of memory" in str(error).lower())


def rows_of(batch: Any) -> int:
    """Samples of a batch: the length of the first thing in it that has rows."""
    shape = getattr(batch, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    if isinstance(batch, dict):
        return next((rows_of(value) for value in batch.values()), 0)
    if isinstance(batch, (list, tuple)):
        first = batch[0] if batch else None
        is_column = getattr(first, "shape", None) is not None and len(first.shape)
        return rows_of(first) if is_column or isinstance(first, (dict, list, tuple)) else len(batch)
    raise InvalidOptionError(
        f"a batch of type {type(batch).__name__} has no rows that could be counted",
        hint="let the data set or collate_fn make tensors, or lists, tuples and dictionaries of them",
    )


def part_of(batch: Any, start: int, end: int) -> Any:
    """Rows of a batch, as views of its tensors."""
    shape = getattr(batch, "shape", None)
    if shape is not None and len(shape):
        return batch[start:end]
    if isinstance(batch, dict):
        return type(batch)({name: part_of(value, start, end) for name, value in batch.items()})
    if isinstance(batch, (list, tuple)):
        return _part_of_sequence(batch, start, end)
    return batch


def _part_of_sequence(batch: Sequence[Any], start: int, end: int) -> Any:
    first = batch[0] if batch else None
    is_column = getattr(first, "shape", None) is not None and len(first.shape)
    if not is_column and not isinstance(first, (dict, list, tuple)):
        return batch[start:end]
    parts = [part_of(value, start, end) for value in batch]
    if hasattr(batch, "_fields"):
        return type(batch)(*parts)
    return tuple(parts) if isinstance(batch, tuple) else parts

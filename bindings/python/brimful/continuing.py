"""A loader's place where torch's machinery does the work: batches are counted, and passed over when it goes on.

That machinery keeps no place itself. Batches that were given are made again and thrown away; it knows no other way to
come to the next one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import dataloader as iterators

from .dataset import count
from .device_copies import Moved
from .engine import Controls
from .errors import StateMismatchError
from .generators import Draws, check_states, generators_of, saved_states


class Progress:
    """How far an epoch of torch's machinery has come.

    Attributes:
        epoch: its number, if it has one.
        draws: the states of the loader's generators when it began.
        is_first: whether its workers were started for it, which draws a number.
        batches: how many were made.
        behind: how many the consumer has, if some were taken ahead of it.
        has_ended: whether there are no more.
    """

    def __init__(self, epoch: int | None, draws: list[Any], is_first: bool) -> None:
        self.epoch = epoch
        self.draws = draws
        self.is_first = is_first
        self.batches = 0
        self.behind: int | None = None
        self.has_ended = False

    def reached(self) -> int:
        """How many batches were made."""
        return self.batches


class _Counted:
    """A torch iterator that notes what it gave."""

    progress: Progress | None = None

    def _next_data(self) -> Any:
        try:
            data = super()._next_data()
        except StopIteration:
            if self.progress is not None:
                self.progress.has_ended = True
            raise
        if self.progress is not None:
            self.progress.batches += 1
        return data


# By torch's names, which programs and profiles show.
class _SingleProcessDataLoaderIter(_Counted, iterators._SingleProcessDataLoaderIter):
    pass


class _MultiProcessingDataLoaderIter(_Counted, iterators._MultiProcessingDataLoaderIter):
    pass


class Continuing(Controls):
    """What a `DataLoader` does on torch's machinery, beside what that does."""

    # The epoch that is under way, and the state that the next one takes up.
    _progress: Progress | None = None
    _taken_up: dict[str, Any] | None = None

    def _get_iterator(self) -> Any:
        return (_SingleProcessDataLoaderIter if self.num_workers == 0 else _MultiProcessingDataLoaderIter)(self)

    def _batches_of_torch(self) -> Iterator[Any]:
        """The batches of the next epoch, or what is left of the one that was taken up."""
        state, self._taken_up = self._taken_up, None
        if state is not None and not self._is_of_next_epoch(state):
            state = None
        generators = self._generators_of_torch()
        if state is None:
            progress = Progress(self._epoch_of_torch(), saved_states(generators), self._starts_workers())
        else:
            progress = Progress(self._epoch_of_torch(), state["draws"], state["is_first"])
        if self._torch_epoch is not None:
            self.generator.manual_seed(random.Random(f"{self.seed} {self._torch_epoch}").getrandbits(63))
            self._torch_epoch += 1
        if state is None:
            iterator = TorchLoader.__iter__(self)
            iterator.progress = progress
        else:
            if self._starts_workers() and not progress.is_first:
                TorchLoader.__iter__(self)
            with Draws(generators, progress.draws):
                if progress.is_first and not self._starts_workers():
                    torch.empty((), dtype=torch.int64).random_(generator=self.generator)
                iterator = TorchLoader.__iter__(self)
                iterator.progress = progress
                _pass_over(iterator, state["batches"])
        self._progress = progress
        return iterator if self._device == "cpu" else Moved(iterator, self._device, progress)

    def _starts_workers(self) -> bool:
        """Whether the next iteration begins with a torch iterator of its own."""
        return not self.persistent_workers or self._iterator is None

    def _generators_of_torch(self) -> list[Any]:
        nested = getattr(self.batch_sampler, "sampler", None)
        # A seed governs the loader's generator, which then has no state that matters.
        own = self.generator if self._torch_epoch is None else None
        return [
            generator
            for generator in generators_of((own, self.sampler, self.batch_sampler, nested))
            if self._torch_epoch is None or generator is not self.generator
        ]

    def _listeners_of_torch(self) -> list[Any]:
        """Samplers that are told epochs, the one that hears them first."""
        holders = (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None))
        return [holder for holder in holders if hasattr(holder, "set_epoch")]

    def _epoch_of_torch(self) -> int | None:
        """The number of the next epoch, where a seed or a sampler knows it."""
        if self._torch_epoch is not None:
            return self._torch_epoch
        told = getattr(next(iter(self._listeners_of_torch()), None), "epoch", None)
        return int(told) if isinstance(told, int) else None

    def _is_of_next_epoch(self, state: dict[str, Any]) -> bool:
        return state["epoch"] is None or state["epoch"] == self._epoch_of_torch()

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that was delivered: a few integers. A pickled loader carries it along.

        Where torch's machinery does the work, the number of batches, and what the epoch was drawn from.
        """
        if self._engine is not None:
            return super().state_dict()
        place = {"version": 2, "engine": "torch"}
        progress = self._progress
        if progress is not None and not (progress.has_ended and progress.behind is None):
            batches = progress.batches if progress.behind is None else progress.behind
            return {**place, **_state(progress.epoch, batches, progress.draws, progress.is_first)}
        if self._taken_up is not None:
            return {**place, **self._taken_up}
        draws = saved_states(self._generators_of_torch())
        return {**place, **_state(self._epoch_of_torch(), 0, draws, self._starts_workers())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Makes the next `iter()` go on where `state_dict` was taken.

        Raises:
            StateMismatchError: if it was taken of another kind of loader, or is none.
        """
        if self._engine is not None:
            return super().load_state_dict(state_dict)
        if state_dict.get("engine") != "torch":
            raise StateMismatchError(
                "the saved state is of a loader that ran natively, and this one runs on torch's machinery",
                hint="loader.explain() says why; make the loader as it was when the state was saved",
            )
        try:
            epoch, batches, draws = (state_dict[name] for name in ("epoch", "batches", "draws"))
            is_first = bool(state_dict["is_first"])
            epoch = epoch if epoch is None else count("epoch", epoch)
            batches = count("batches", batches)
            check_states(self._generators_of_torch(), draws)
        except (TypeError, KeyError, ValueError, RuntimeError) as error:
            raise StateMismatchError(f"this is no state of such a loader: {error}") from None
        self._progress = None
        if epoch is not None:
            self._tell_torch(epoch)
        self._taken_up = _state(epoch, batches, draws, is_first)
        return None

    def _tell_torch(self, epoch: int) -> bool:
        """Makes `epoch` the next one; whether anybody listens."""
        if self._torch_epoch is not None:
            self._torch_epoch = count("epoch", epoch)
        listeners = self._listeners_of_torch()
        if listeners:
            listeners[0].set_epoch(epoch)
        self._progress = None
        return bool(listeners) or self._torch_epoch is not None


def _state(epoch: int | None, batches: int, draws: list[Any], is_first: bool) -> dict[str, Any]:
    return {"epoch": epoch, "batches": batches, "draws": draws, "is_first": is_first}


def _pass_over(iterator: Iterator[Any], batches: int) -> None:
    for given in range(batches):
        try:
            next(iterator)
        except StopIteration:
            raise StateMismatchError(
                f"the saved place lies after {batches} batches, and the epoch has only {given}",
                hint="were data set, sampler or batch size changed since?",
            ) from None

"""What a `DataLoader` has for a batch size that is found while training runs; without `AutoBatch` none of it acts.

The search itself is the work of `autobatch`, and batches under it that of `adaptive`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from .adaptive import Adaptive, AdaptiveBatchSampler, OomGuard, Steps
from .agreement import Agreement
from .autobatch import AutoBatch, Tuning
from .errors import InvalidOptionError

IN_FLIGHT = 6
"""Batches in flight under a search for the batch size, unless asked otherwise."""


class Searching:
    """The batch size of a `DataLoader`, and what it tells of the search for one."""

    _tuning: Tuning | None = None
    _steps: Steps | None = None
    _adaptive: Adaptive | None = None

    def _search_with(self, asked: AutoBatch | None) -> None:
        """Begins the search for a batch size, if one was asked for."""
        if asked is None:
            return
        if self._batching is not None and self._batching.batch_sampler is not None:
            raise InvalidOptionError(
                "AutoBatch finds how large batches should be, and a batch sampler says how large they are",
                hint="give a sampler in its place, or a batch_size that is a number",
            )
        if self._engine is not None:
            samples, lag = self._engine.native.samples, self._engine.native.prefetch
            if self._batching is not None:
                samples = _length(self._batching.sampler)
            if self._stages is not None:
                # Workers take batches ahead as they get on, not at fixed steps.
                lag += 2 * max(1, self.num_workers)
                if Agreement().world_size > 1:
                    raise InvalidOptionError(
                        "AutoBatch changes batches on all ranks at the same step, and Python stages take them ahead at "
                        f"no fixed one: {', '.join(self._stages.names)}",
                        hint="use transforms that compile and no collate_fn, or a batch_size that is a number",
                    )
        else:
            # What workers have been given ahead, and what is copied ahead.
            lag = self.num_workers * (self.prefetch_factor or 0) + (0 if self._device == "cpu" else 2)
            samples = None if isinstance(self.dataset, torch.utils.data.IterableDataset) else len(self.sampler)
            drop_last = self.drop_last and asked.global_batch is None
            object.__setattr__(self, "batch_sampler", AdaptiveBatchSampler(self.sampler, drop_last))
        self._tuning = Tuning(asked, self._device, samples, lag + (asked.global_batch is not None))
        self._steps = Steps(self._tuning.per_rank)
        self._tuning.follow = self._ask_for_size
        self._ask_for_size(self._tuning.batch_size)

    def _ask_for_size(self, size: int) -> None:
        if self._engine is None:
            self.batch_sampler.batch_size = size
        elif self._batching is not None:
            self._batching.batch_size = size
        else:
            self._engine.native.set_batch_size(size)

    def _under_search(self, batches: Iterator[Any]) -> Iterator[Any]:
        if self._tuning is None:
            return batches
        samples = None
        if self._engine is not None and self._engine.native.samples is not None:
            samples = self._engine.native.samples - self._engine.native.state()["position"]
        elif self._engine is not None and self._batching is not None:
            length = _length(self._batching.sampler)
            samples = None if length is None else length - self._engine.native.state()["position"]
        elif self._engine is None and not isinstance(self.dataset, torch.utils.data.IterableDataset):
            samples = len(self.sampler)
        self._adaptive = Adaptive(self, batches, self._tuning, self._steps, samples, self.drop_last)
        return self._adaptive

    @property
    def batch_size(self) -> int | None:
        """Rows of a batch; under `AutoBatch` those of the present one."""
        return self.__dict__["batch_size"] if self.__dict__.get("_tuning") is None else self._tuning.batch_size

    @batch_size.setter
    def batch_size(self, size: int | None) -> None:
        self.__dict__["batch_size"] = size

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of one optimiser step under `AutoBatch(global_batch=...)`, else 1."""
        return 1 if self._tuning is None else self._tuning.accumulation_steps

    @property
    def is_last_micro_batch(self) -> bool:
        """Whether the optimiser should step after the present batch."""
        return self._steps is None or self._steps.is_last

    @property
    def micro_batch_share(self) -> float:
        """The present batch's share of its optimiser step: what its mean loss is to be multiplied with.

        That is 1 / `accumulation_steps`, but for the batches after a change, which may be cut to complete a step.
        """
        return 1.0 if self._steps is None else self._steps.share

    @property
    def tuning(self) -> dict[str, Any] | None:
        """What the search for a batch size has found: sizes, rates, changes with their reasons; None without one."""
        return None if self._tuning is None else self._tuning.summary()

    def oom_guard(self, optimizer: torch.optim.Optimizer | None = None, agree: bool = False) -> Any:
        """A context for a training step that may run out of memory under `AutoBatch`; see `OomGuard`."""
        if self._tuning is None:
            return contextlib.nullcontext()
        return OomGuard(self._adaptive, self._tuning, optimizer, agree)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`, and under `AutoBatch` what the search has found."""
        state = super().state_dict()
        return state if self._tuning is None else {**state, "autobatch": self._tuning.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As `Loader.load_state_dict`; a search goes on where it was, if the state has one and so has this loader."""
        place = dict(state_dict)
        search = place.pop("autobatch", None)
        super().load_state_dict(place)
        if search is not None and self._tuning is not None:
            self._tuning.load_state(search)


def _length(sampler: Any) -> int | None:
    """How many numbers a sampler gives, if it knows."""
    try:
        return len(sampler)
    except TypeError:
        return None

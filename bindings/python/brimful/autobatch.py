"""The adaptive batch size: what a user asks for, and the search that follows it while training runs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _native
from .agreement import Agreement
from .errors import InvalidOptionError, LimitError
from .step_clock import CudaClock, HostClock, Probe, clock, where_models_run

WARM_UP = 3
STEPS = 12
CHANGES_KEPT = 1000


@dataclass(frozen=True)
class AutoBatch:
    """In place of a number as `batch_size`: the smallest batch that keeps the device busy is found while training runs.

    The batch grows between steps, geometrically, until a larger one gains nothing, fits no more or waits for data; then
    the smallest size is taken whose rate reaches `target` of the best. That is another training than with a fixed size:
    see `global_batch`, and `on_change` for the learning rate.

    Attributes:
        min, max: bounds of the batch size of one rank. No batch is larger than the data set.
        target: share of the best rate that is enough, 0.5 to 1.
        multiple_of: sizes are multiples of this.
        headroom: share of device memory that stays free, 0 to 0.9.
        global_batch: samples of one optimiser step over all ranks and accumulation steps. It stays fixed: the
            micro-batch is one of its divisors, and `loader.is_last_micro_batch` says when to step.
        on_change: called with (old, new, lr_scale, reason) before the first batch of a new size is given.
        lr_rule: how `lr_scale` follows the size: "linear" (for SGD), "sqrt" (for Adam), or "none". Under `global_batch`
            it is always 1.
        sampler: what readings are taken from; None for the GPU's own, if it is there.
    """

    min: int = 16
    max: int = 1024
    target: float = 0.95
    multiple_of: int = 8
    headroom: float = 0.1
    global_batch: int | None = None
    on_change: Callable[[int, int, float, str], None] | None = None
    lr_rule: str = "linear"
    sampler: Any = None

    def __post_init__(self) -> None:
        for name in ("min", "max", "multiple_of", *(() if self.global_batch is None else ("global_batch",))):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidOptionError(f"{name}={value!r} is no whole number from 1 on")
        if self.lr_rule not in ("linear", "sqrt", "none"):
            raise InvalidOptionError(
                f"lr_rule={self.lr_rule!r} is not known", hint='lr_rule is "linear", "sqrt" or "none"'
            )

    def lr_scale(self, old: int, new: int) -> float:
        """What the learning rate is to be multiplied with when the size changes from `old` to `new`."""
        if self.global_batch is not None or self.lr_rule == "none":
            return 1.0
        return new / old if self.lr_rule == "linear" else (new / old) ** 0.5


class Tuning:
    """One search, in one training run.

    Args:
        options: what the user asked for.
        device: the name of the device that the model runs on.
        samples: samples of an epoch of this rank; None if unknown.
        lag: batches that still come in the old size after another was asked for.
    """

    def __init__(self, options: AutoBatch, device: str, samples: int | None, lag: int) -> None:
        self.options = options
        self.lag = lag
        self._agreement = Agreement()
        self._world_size = self._agreement.world_size
        self.per_rank = self._samples_per_rank()
        self._search = self._new_search(samples)
        self._device = device
        self._clock: HostClock | CudaClock = HostClock()
        self._probe = Probe("cpu", options.sampler)
        self._has_agreed = False
        self.batch_size = self._search.batch_size
        self.changes: list[dict[str, Any]] = []
        self.steps = 0
        # Sizes from here on ran out of memory.
        self.ceiling: int | None = None
        self._due: deque[tuple[int, int, str]] = deque()
        self._countdown = 0
        self.follow: Callable[[int], None] = lambda size: None

    def _samples_per_rank(self) -> int | None:
        batch = self.options.global_batch
        if batch is None:
            return None
        ranks = self._world_size
        if batch % ranks:
            below, above = batch // ranks * ranks, -(-batch // ranks) * ranks
            near = " and ".join(str(size) for size in (below, above) if size)
            raise InvalidOptionError(
                f"global_batch={batch} cannot be shared by {ranks} ranks", hint=f"the nearest that can are {near}"
            )
        return batch // ranks

    def _new_search(self, samples: int | None) -> _native.BatchSearch:
        wanted = self.options
        largest = wanted.max
        if samples is not None and samples < largest:
            if samples < wanted.min:
                raise InvalidOptionError(
                    f"this rank has {samples} samples an epoch, fewer than AutoBatch's min={wanted.min}",
                    hint="give a smaller min, or a batch_size that is a number",
                )
            largest = samples
        return _native.BatchSearch(
            min=wanted.min,
            max=largest,
            multiple_of=wanted.multiple_of,
            per_rank=self.per_rank,
            target=wanted.target,
            headroom=wanted.headroom,
            warm_up=WARM_UP,
            steps=STEPS,
        )

    @property
    def largest(self) -> int:
        """The largest size that may be chosen."""
        return self._search.sizes[-1]

    @property
    def wanted(self) -> int:
        """The size that was asked for last; batches of the former one may still be under way."""
        return self._search.batch_size

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches of one optimiser step."""
        return 1 if self.per_rank is None else self.per_rank // self.batch_size

    def summary(self) -> dict[str, Any]:
        """What the search has found so far."""
        return {
            "batch_size": self.batch_size,
            "accumulation_steps": self.accumulation_steps,
            "phase": self._search.phase,
            "limit": self._search.limit,
            "samples_per_s": dict(self._search.rates),
            "steps": self.steps,
            "changes": list(self.changes),
            "probe": self._probe.told,
        }

    def asks_for_batch(self) -> None:
        """The program is done with a step: here decisions are made, on all ranks at the same step."""
        if not self._has_agreed:
            self._agree()
        self._clock.end_step()
        self._countdown -= 1
        if self._countdown == self._search.steps_wanted + self._clock.lag:
            # The batches of the old size are through: what was measured on the way says nothing.
            self._clock.take()
            self._probe.take()
            self._search.renew()
        if self._countdown <= 0:
            self._decide()

    def has_batch(self, rows: int) -> None:
        """A batch has come that is trained on next."""
        self.steps += 1
        self._clock.begin_step(rows)
        while self._due and (rows == self._due[0][0] or self.steps >= self._due[0][1]):
            size, _, reason = self._due.popleft()
            self._change(size, reason)

    def pause(self) -> None:
        """What happens now is no step."""
        self._clock.pause()

    def ran_out_of_memory(self, rows: int) -> None:
        """A step of `rows` samples failed for want of memory.

        Raises:
            LimitError: when there is no smaller size.
        """
        self._clock.pause()
        self.ceiling = rows if self.ceiling is None else min(self.ceiling, rows)
        told = json.loads(self._search.out_of_memory(rows))
        if told["decision"]["phase"] == "failed":
            raise LimitError(
                f"a batch of {rows} samples does not fit in memory, and AutoBatch's min={self.options.min} allows none "
                "smaller",
                hint="give a smaller min, a smaller model or image, or activation checkpointing",
            )
        self._due.clear()
        self._ask(told)

    def agree_on_failure(self, failed: int | None) -> int | None:
        """Rows of the smallest batch that ran out of memory in this step on any rank."""
        least = self._agreement.least([float("inf") if failed is None else float(failed)])[0]
        return None if least == float("inf") else int(least)

    @property
    def world_size(self) -> int:
        """Ranks that search together."""
        return self._world_size

    def state(self) -> str:
        """The search as a text, without what is not decided yet."""
        return self._search.state()

    def load_state(self, state: str) -> None:
        """Goes on with a saved search."""
        self._search.load_state(state)
        self._due.clear()
        self.batch_size = self._search.batch_size
        self._countdown = self._search.steps_wanted + self._clock.lag + 1
        self.follow(self.batch_size)

    def _agree(self) -> None:
        self._has_agreed = True
        device = where_models_run(self._device)
        self._clock = clock(device)
        self._probe = Probe(device, self.options.sampler)
        self._countdown = self._search.steps_wanted + self._clock.lag + 1
        now = self._agreement.world_size
        if now != self._world_size:
            raise InvalidOptionError(
                f"this loader was made for {self._world_size} rank(s), and now there are {now}",
                hint="make the loader after init_process_group",
            )
        self._agreement.check_alike(
            {
                "the smallest batch size": self._search.sizes[0],
                "the largest batch size, which the samples of a rank bound": self.largest,
                "the number of sizes": len(self._search.sizes),
                "the present batch size": self.batch_size,
                "batches in flight": self.lag,
                "the way that steps are timed": self._clock.lag,
            }
        )

    def _decide(self) -> None:
        for step in self._clock.take()[: self._search.steps_wanted]:
            self._search.step(step.rows, step.elapsed_s, step.waited_s)
        vector = self._search.vector(self._probe.take(), self._clock.memory())
        self._ask(json.loads(self._search.decide(self._agreement.least(vector))))

    def _ask(self, told: dict[str, Any]) -> None:
        """Asks for the size of a decision, and sets when the next one is due."""
        self._countdown = self._search.steps_wanted + self._clock.lag
        change = told["decision"]["change"]
        if change is None:
            self._search.renew()
            return
        self._countdown += self.lag + 1
        self._due.append((change["to"], self.steps + self.lag + 2, told["reason"]))
        self.follow(change["to"])

    def _change(self, size: int, reason: str) -> None:
        old, self.batch_size = self.batch_size, size
        if old == size:
            return
        scale = self.options.lr_scale(old, size)
        self.changes.append({"from": old, "to": size, "lr_scale": scale, "reason": reason, "step": self.steps})
        del self.changes[:-CHANGES_KEPT]
        if self.options.on_change is not None:
            self.options.on_change(old, size, scale, reason)

    def __getstate__(self) -> dict[str, Any]:
        # Clock, probe and group belong to this process; the search goes on from its state.
        raise TypeError("a running search for a batch size cannot be pickled; give workers a loader of their own")

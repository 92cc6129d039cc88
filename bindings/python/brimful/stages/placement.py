"""Whether Python steps run in threads or in worker processes: by rule where that is clear, by measurement where not.

It decides and tells why; it starts nothing.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

from .contention import Span
from .draws import Source

THREADS, PROCESSES = "threads", "processes"

# The first samples are made by one thread alone for so long: what it waits for then is no other thread.
SOLO_S = 0.15

# A measurement covers at least so much time of a thread.
_LEAST_S = 0.1

# Threads that wait for each other for more than this share of their time are worth processes, below the other they are
# not; in between they are measured again, up to a limit.
_HIGH, _LOW = 0.2, 0.08
_MEASUREMENTS_MAX = 8

# Measurements in a row above the bound that it takes: at first, and once threads have been found good.
_IN_A_ROW, _IN_A_ROW_LATER = 2, 4


@dataclass(frozen=True)
class Rules:
    """What is known before anything is measured.

    Attributes:
        wish: "auto", "threads" or "processes".
        num_workers: as the user gave it; 0 asks for no worker processes.
        source: what the steps draw from.
        drawers: the names of steps that draw from generators which threads share.
        has_init: whether there is a worker_init_fn.
        is_nested: whether this process is a worker itself.
    """

    wish: str
    num_workers: int
    source: Source
    drawers: tuple[str, ...]
    has_init: bool
    is_nested: bool


def has_interpreter_lock() -> bool:
    """Whether threads of this interpreter take turns."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()


class Placement:
    """The decision, and what it rests on. Threads may tell and ask at any time."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._is_fixed = True
        self._draws_globally = rules.source == Source.GLOBAL
        self.where, self.why = self._by_rule()
        self._solo: float | None = None
        self._solo_taken = False
        self.solo_is_over = threading.Event()
        self._own_s = self._blocked_s = 0.0
        self._shares: list[float] = []
        self._in_a_row = 0
        self._is_settled = False

    def _by_rule(self) -> tuple[str, str]:
        rules = self._rules
        if rules.wish != "auto":
            return rules.wish, f'stages="{rules.wish}"'
        if rules.is_nested:
            return THREADS, "this process is a worker itself"
        if not has_interpreter_lock():
            return THREADS, "this interpreter runs threads side by side"
        if rules.num_workers == 0:
            return THREADS, "num_workers=0 asks for no worker processes"
        if rules.has_init:
            return PROCESSES, "worker_init_fn is for worker processes"
        if rules.source == Source.GLOBAL:
            return PROCESSES, self._drawing()
        self._is_fixed = False
        return THREADS, "not measured yet"

    def _drawing(self) -> str:
        names = ", ".join(self._rules.drawers) or "a function"
        return f"{names} draws from generators that threads share"

    @property
    def is_measuring(self) -> bool:
        """Whether measurements can change the decision."""
        return not self._is_fixed and self.where == THREADS

    @property
    def draws(self) -> str:
        """How draws of threads are kept apart: a name of `draws.STRATEGIES`."""
        if self._draws_globally:
            return "locked"
        return {Source.NONE: "none", Source.TORCH: "led", Source.UNKNOWN: "watched"}[self._rules.source]

    def takes_solo(self) -> bool:
        """Whether the calling thread is the one that works alone at first."""
        with self._lock:
            if self._solo_taken or not self.is_measuring:
                return False
            self._solo_taken = True
            return True

    @property
    def waits_for_solo(self) -> bool:
        return self._solo_taken and not self.solo_is_over.is_set()

    def observe_solo(self, span: Span | None) -> None:
        """What a thread did alone; None if it came to nothing."""
        with self._lock:
            self._solo = 0.0 if span is None else span.blocked_share
        self.solo_is_over.set()

    def observe(self, span: Span) -> None:
        """What a thread did beside others."""
        with self._lock:
            if not self.is_measuring:
                return
            self._own_s += span.own_s
            self._blocked_s += span.blocked_s
            if self._own_s < _LEAST_S:
                return
            share = max(self._blocked_s / self._own_s - (self._solo or 0.0), 0.0)
            self._own_s = self._blocked_s = 0.0
            self._shares = [*self._shares[-_MEASUREMENTS_MAX:], share]
            self._decide(share)

    def _decide(self, share: float) -> None:
        self._in_a_row = self._in_a_row + 1 if share > _HIGH else 0
        found = f"threads wait for the interpreter's lock for {share:.0%} of their time"
        if self._in_a_row >= (_IN_A_ROW_LATER if self._is_settled else _IN_A_ROW):
            self.where, self.why = PROCESSES, found
        elif not self._is_settled and (share < _LOW or len(self._shares) >= _MEASUREMENTS_MAX):
            self._is_settled, self.why = True, found
        elif not self._is_settled:
            self.why = f"{found}, to be measured again"

    def saw_global_draw(self) -> None:
        """A function drew from a generator that threads share: it must have it to itself from now on."""
        with self._lock:
            self._draws_globally = True
            if not self._is_fixed:
                self.where, self.why, self._is_fixed = PROCESSES, self._drawing(), True

    def refuse(self, reason: str) -> bool:
        """Worker processes cannot be had; False where nothing else was asked for."""
        with self._lock:
            if self._rules.wish == PROCESSES:
                return False
            self.where, self._is_fixed = THREADS, True
            self.why = f"worker processes cannot be started: {reason}"
            return True

    def randomness(self) -> str | None:
        """What is to be said of draws, if anything."""
        if self.where == PROCESSES or self._rules.source == Source.NONE:
            return None
        if self.draws == "locked":
            return f"{self._drawing()}: samples are made one at a time"
        return None

    def document(self) -> dict[str, Any]:
        """The decision and its reasons, for `stats()`."""
        with self._lock:
            return {
                "where": self.where,
                "why": self.why,
                "draws": "owned" if self.where == PROCESSES else self.draws,
                "waits_alone_share": self._solo,
                "waits_beside_others_share": self._shares[-1] if self._shares else None,
                "measurements": len(self._shares),
            }

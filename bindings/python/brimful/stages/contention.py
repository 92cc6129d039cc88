"""How long a thread waits for others, measured by the system: at work, ready but without a processor, or blocked.

A thread that waits for the interpreter's lock is blocked, and so is one that waits for storage; one that waits because
the machine is busy is neither. It measures; what follows from it is decided in `placement`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_SCHEDSTAT = "/proc/thread-self/schedstat"


@dataclass(frozen=True)
class Span:
    """What a thread did for a while, in seconds."""

    wall_s: float
    cpu_s: float
    queued_s: float

    @property
    def blocked_s(self) -> float:
        """The time for which the thread waited for a lock or for the system."""
        return max(self.wall_s - self.cpu_s - self.queued_s, 0.0)

    @property
    def own_s(self) -> float:
        """The time for which it did not wait for a processor, which tells of the machine and not of the thread."""
        return self.cpu_s + self.blocked_s

    @property
    def blocked_share(self) -> float:
        """The share of its own time that the thread waited for a lock or for the system, 0 to 1."""
        return self.blocked_s / self.own_s if self.own_s > 0 else 0.0


class Meter:
    """Measures the calling thread from its making on."""

    def __init__(self) -> None:
        self._begin = _now()

    def span(self) -> Span:
        """What the thread did since the meter was made."""
        begin, end = self._begin, _now()
        return Span(*(b - a for a, b in zip(begin, end, strict=True)))


def _now() -> tuple[float, float, float]:
    """Wall time, processor time, and time spent ready without a processor."""
    wall = time.perf_counter()
    try:
        with open(_SCHEDSTAT, "rb", buffering=0) as file:
            cpu_ns, queued_ns, _ = file.read().split()
    except (OSError, ValueError):
        # Systems that do not tell: waiting for a processor then counts as blocked.
        return wall, time.thread_time(), 0.0
    return wall, int(cpu_ns) * 1e-9, int(queued_ns) * 1e-9

"""How long training steps take on their device, and how much of its memory they need.

On a GPU a step's time is what lies between two events of the consumer's stream, so that a program which launches ahead
is not deceived; on the CPU it is wall time.
"""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from . import _native
from .errors import BrimfulError

LAG = 2
"""Steps at the end of a window that a GPU need not have finished: waiting for them would let it run dry."""


class Timed(NamedTuple):
    """A step that has ended."""

    rows: int
    elapsed_s: float
    waited_s: float


class HostClock:
    """Wall time; for models on the CPU."""

    lag = 0

    def __init__(self) -> None:
        self._began: float | None = None
        self._rows = 0
        self._waited = 0.0
        self._steps: list[Timed] = []

    def end_step(self) -> None:
        """The program asks for the next batch: the step before is over, and waiting begins."""
        now = time.perf_counter()
        if self._began is not None and self._rows > 0:
            self._steps.append(Timed(self._rows, now - self._began, self._waited))
        self._began = now
        self._rows = 0

    def begin_step(self, rows: int) -> None:
        """The batch has arrived."""
        self._rows = rows
        self._waited = 0.0 if self._began is None else time.perf_counter() - self._began

    def pause(self) -> None:
        """The step in progress is none: it failed, or an epoch ended."""
        self._began = None
        self._rows = 0

    def take(self) -> list[Timed]:
        """The steps that have ended since the last call."""
        steps, self._steps = self._steps, []
        return steps

    def memory(self) -> tuple[int, int] | None:
        """Bytes in use at most since the last call and bytes that may be; None where nobody knows."""
        return None


class CudaClock:
    """Events on the current stream of a GPU."""

    lag = LAG

    def __init__(self, device: Any) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        self._last: Any = None
        self._rows = 0
        self._waited = 0.0
        self._asked = 0.0
        self._events: list[tuple[Any, Any, int, float]] = []
        self._peak = 0

    def end_step(self) -> None:
        """See `HostClock.end_step`."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        if self._last is not None and self._rows > 0:
            self._events.append((self._last, event, self._rows, self._waited))
        self._last = event
        self._rows = 0
        self._asked = time.perf_counter()

    def begin_step(self, rows: int) -> None:
        """See `HostClock.begin_step`. Waiting counts only where the GPU had nothing left to do meanwhile."""
        self._rows = rows
        waited = time.perf_counter() - self._asked
        self._waited = waited if self._last is not None and self._last.query() else 0.0

    def pause(self) -> None:
        """See `HostClock.pause`."""
        self._last = None
        self._rows = 0

    def take(self) -> list[Timed]:
        """The steps since the last call but for the last `LAG` of them."""
        ended, self._events = self._events[:-LAG], self._events[-LAG:]
        if ended:
            ended[-1][1].synchronize()
        return [Timed(rows, first.elapsed_time(last) / 1e3, waited) for first, last, rows, waited in ended]

    def memory(self) -> tuple[int, int] | None:
        """See `HostClock.memory`; what other processes and brimful's own buffers hold is counted."""
        cuda = self._torch.cuda
        peak = cuda.max_memory_allocated(self._device)
        if peak <= self._peak:
            # It was an earlier, larger batch's.
            return None
        self._peak = peak
        free, total = cuda.mem_get_info(self._device)
        reserved = cuda.memory_reserved(self._device)
        others = total - free - reserved
        share = getattr(cuda, "get_per_process_memory_fraction", lambda _: 1.0)(self._device)
        return max(0, others + peak), int(min(total, others + share * total))


def clock(device: Any) -> HostClock | CudaClock:
    """The clock of a device's name; `cpu` is anything that is no GPU."""
    return CudaClock(device) if str(device).startswith("cuda") else HostClock()


def where_models_run(device: str) -> str:
    """The device of the steps of a program that gets its batches on `device`: its current GPU once it uses one."""
    import torch

    if device == "cpu" and torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    return device


class Probe:
    """Readings of the GPU that a loader delivers to, where they can be had; `told` says what they are, or why not."""

    def __init__(self, device: Any, sampler: Any = None, rate_hz: float = 4.0) -> None:
        self._sampler = sampler
        self.told = "" if sampler is None else sampler.describe()
        if sampler is not None:
            return
        if not str(device).startswith("cuda"):
            self.told = "no GPU: rates alone decide"
            return
        self._sampler, self.told = _sampler(device, rate_hz)

    def take(self) -> str | None:
        """The mean of the readings since the last call as JSON, None without any."""
        return None if self._sampler is None else self._sampler.take()

    def reading(self) -> dict[str, Any]:
        """The same as a dictionary, empty without any."""
        text = self.take()
        return {} if text is None else json.loads(text)


def _sampler(device: Any, rate_hz: float) -> tuple[Any, str]:
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        return None, "this torch does not tell the GPU's UUID: rates alone decide"
    text = str(uuid)
    names = [text] if text.startswith(("GPU-", "MIG-")) else [f"MIG-{text}", f"GPU-{text}"]
    failure = ""
    for name in names:
        try:
            sampler = _native.GpuSampler(name, rate_hz=rate_hz)
        except BrimfulError as error:
            failure = str(error)
        else:
            return sampler, sampler.describe()
    return None, f"rates alone decide: {failure}"

"""Stage 3: a model over batch sizes, on data that is on the device already, and then on the loader's."""

from __future__ import annotations

import contextlib
import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _native
from ..adaptive import is_out_of_memory, rows_of
from ..step_clock import Probe
from .subject import Marks, moved, resized

WARM_STEPS = 3
STEPS_LEAST = 3
SIZE_MAX = 1 << 16


def curve(
    subject: Any,
    batch: Any,
    probe: Probe,
    seconds: float,
    *,
    smallest: int = 16,
    largest: int = SIZE_MAX,
    each_s: float = 3.0,
) -> list[dict[str, Any]]:
    """Doubling batch sizes from `smallest` until memory or time is over: rates, activity and memory of each.

    A size is measured for `each_s` at most, and three steps at least; one that runs out of memory is the last row, with
    `"out_of_memory": True`.
    """
    rows: list[dict[str, Any]] = []
    begin, size = time.perf_counter(), smallest
    while size <= largest:
        left = seconds - (time.perf_counter() - begin)
        # The next size takes as long as all before it together.
        if left <= 0 and len(rows) >= 2:
            break
        try:
            rows.append(_measure(subject, batch, size, probe, max(0.0, min(each_s, left / 6))))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            rows.append({"batch_size": size, "out_of_memory": True})
            break
        finally:
            _collect(subject.device)
        size *= 2
    return rows


def align(subject: Any, batch: Any, probe: Probe, size: int, seconds: float) -> dict[str, float]:
    """What sizes that are multiples of 8 and of 64 gain over one that is neither, near `size`; shares."""
    near = {1: max(3, size - 3), 8: max(8, size // 8 * 8 - (8 if size % 64 == 0 else 0)), 64: max(64, size // 64 * 64)}
    rates = {of: _measure(subject, batch, rows, probe, seconds / 3)["per_s"] for of, rows in near.items()}
    return {f"multiple_of_{of}": rates[of] / rates[1] - 1 for of in (8, 64)}


def search(rows: list[dict[str, Any]], target: float, headroom: float) -> tuple[int, str]:
    """The smallest size of a curve that reaches the target share, and what limits; by the rules of `AutoBatch`."""
    good = [row for row in rows if not row.get("out_of_memory")]
    least, most = good[0]["batch_size"], good[-1]["batch_size"]
    found = _native.BatchSearch(
        min=least, max=most, multiple_of=1, per_rank=None, target=target, headroom=headroom, warm_up=0, steps=1
    )
    # Between sizes that were run the search asks for others; here it gets what lies between them.
    for _ in range(60):
        size = found.batch_size
        low = max((row for row in good if row["batch_size"] <= size), key=lambda row: row["batch_size"])
        high = min((row for row in good if row["batch_size"] >= size), key=lambda row: row["batch_size"])
        for _ in range(found.steps_wanted):
            found.step(size, _between(low, high, size, "step_s"), 0.0)
        memory = None
        if low.get("memory_bytes") and high.get("memory_bytes"):
            memory = (int(_between(low, high, size, "memory_bytes")), int(high["memory_limit_bytes"]))
        activity = None
        if low.get("sm_active") is not None and high.get("sm_active") is not None:
            activity = json.dumps({"sm_active": _between(low, high, size, "sm_active")})
        phase = json.loads(found.decide(found.vector(activity, memory)))["decision"]["phase"]
        if phase in ("settled", "failed"):
            break
    return found.batch_size, found.limit


def split(subject: Any, batch: Any, size: int, steps: int = 8) -> dict[str, float] | None:
    """Seconds of each part of a step, the medians; None for a step function, whose parts nobody knows."""
    if not hasattr(subject, "parts"):
        return None
    there = resized(batch, size)
    if subject.device.type == "cuda" and is_pinned(batch):
        there = _pinned(there)
    seen = [subject.parts(there) for _ in range(steps + WARM_STEPS)][WARM_STEPS:]
    return {name: statistics.median(row[name] for row in seen) for name in seen[0]}


def is_pinned(batch: Any) -> bool:
    """Whether a batch is where copies to a GPU start at full rate, or on the GPU already."""
    return all(tensor.is_cuda or (torch.cuda.is_available() and tensor.is_pinned()) for tensor in _tensors(batch))


def image_bytes(batch: Any) -> float:
    """Bytes of one row of a batch."""
    return sum(tensor.nbytes for tensor in _tensors(batch)) / max(1, rows_of(batch))


def _tensors(batch: Any) -> list[torch.Tensor]:
    if torch.is_tensor(batch):
        return [batch]
    columns = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else []
    return [tensor for column in columns for tensor in _tensors(column)]


def _pinned(batch: Any) -> Any:
    if torch.is_tensor(batch):
        return batch if batch.is_cuda else batch.pin_memory()
    if isinstance(batch, dict):
        return {name: _pinned(value) for name, value in batch.items()}
    return [_pinned(value) for value in batch] if isinstance(batch, (list, tuple)) else batch


def end_to_end(subject: Any, batches: Iterator[Any], seconds: float) -> dict[str, Any]:
    """The model fed by the loader: rate, and the share of the time that it waited."""
    for _ in range(WARM_STEPS):
        subject.step(next(batches))
    _finish(subject.device)
    begin, rows, steps, waited = time.perf_counter(), 0, 0, 0.0
    idle = _Idle(subject.device)
    while time.perf_counter() - begin < seconds or steps < STEPS_LEAST:
        idle.mark()
        asked = time.perf_counter()
        batch = next(batches)
        waited += (time.perf_counter() - asked) if idle.was_idle() else 0.0
        subject.step(batch)
        rows += rows_of(batch)
        steps += 1
    _finish(subject.device)
    took = time.perf_counter() - begin
    return {"per_s": rows / took, "wait_share": min(1.0, waited / took), "steps": steps, "step_s": took / steps}


def launches(subject: Any, batch: Any, size: int, steps: int = 4) -> dict[str, float]:
    """On a GPU: the share of a step in which kernels ran, and calls a step that waited for it."""
    if subject.device.type != "cuda":
        return {}
    there = moved(resized(batch, size), subject.device)
    for _ in range(WARM_STEPS):
        subject.step(there)
    _finish(subject.device)
    syncs = _syncs(lambda: [subject.step(there) for _ in range(steps)]) / steps
    _finish(subject.device)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    begin = time.perf_counter()
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(steps):
            subject.step(there)
        _finish(subject.device)
    took = time.perf_counter() - begin
    kernels_s = sum(getattr(row, "self_device_time_total", 0.0) for row in profile.key_averages()) / 1e6
    share = min(1.0, kernels_s / took)
    told = {"kernel_share": share, "syncs_per_step": syncs}
    return {**told, "sync_idle_s": (1 - share) * took / steps if syncs >= 0.5 else 0.0}


def memory_of(device: torch.device) -> dict[str, float]:
    """What the allocator holds and what tensors use at most, on a GPU."""
    if device.type != "cuda":
        return {}
    stats = torch.cuda.memory_stats(device)
    return {
        "reserved_bytes": float(stats.get("reserved_bytes.all.peak", 0)),
        "allocated_bytes": float(stats.get("allocated_bytes.all.peak", 0)),
    }


def try_changes(
    make: Callable[..., Any], batch: Any, size: int, names: list[str], probe: Probe, seconds: float
) -> dict[str, dict[str, Any]]:
    """What each change gains over the plain model at the same size; `make(**options)` makes a subject."""
    options = {
        "compile": {"compile": True},
        "channels_last": {"channels_last": True},
        "amp": {"amp": "bf16"},
        "cudagraphs": {"cudagraphs": True},
    }
    share = seconds / (len(names) + 1)
    plain = _measure(make(), batch, size, probe, share)["per_s"]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            subject = make(**options[name])
            if name == "cudagraphs" and subject.device.type != "cuda":
                found[name] = {"note": "needs a GPU"}
                continue
            found[name] = {"gain": _measure(subject, batch, size, probe, share)["per_s"] / plain - 1}
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is told, and the others are tried
            found[name] = {
                "note": f"failed: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            }
    return found


def _measure(subject: Any, batch: Any, size: int, probe: Probe, seconds: float) -> dict[str, Any]:
    device = subject.device
    there = moved(resized(batch, size), device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(WARM_STEPS):
        subject.step(there)
    _finish(device)
    probe.take()
    begin, times = time.perf_counter(), []
    while len(times) < STEPS_LEAST or time.perf_counter() - begin < seconds:
        marks = Marks(device)
        marks.mark()
        subject.step(there)
        marks.mark()
        times.append(marks)
        if len(times) % 4 == 0:
            _finish(device)
    _finish(device)
    step_s = statistics.median(marks.seconds()[0] for marks in times)
    if hasattr(subject, "look_at_numbers"):
        subject.look_at_numbers()
    reading = probe.reading()
    names = ("sm_active", "sm_occupancy", "tensor", "dram", "gpu_busy", "sm_clock_mhz")
    row = {"batch_size": size, "per_s": size / step_s, "step_s": step_s, "steps": len(times)}
    row |= {name: reading[name] for name in names if reading.get(name) is not None}
    if reading.get("throttle"):
        row["is_throttled"] = reading["throttle"]["thermal"] or reading["throttle"]["hardware"]
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        others = total - free - torch.cuda.memory_reserved(device)
        row |= {"memory_bytes": others + torch.cuda.max_memory_allocated(device), "memory_limit_bytes": total}
    return row


def _between(low: dict[str, Any], high: dict[str, Any], size: int, name: str) -> float:
    if low is high:
        return low[name]
    share = (size - low["batch_size"]) / (high["batch_size"] - low["batch_size"])
    return low[name] + share * (high[name] - low[name])


class _Idle:
    """Whether a GPU had nothing to do since a mark; the CPU never has while it waits."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    def mark(self) -> None:
        if self._event is not None:
            self._event.record()

    def was_idle(self) -> bool:
        return self._event is None or self._event.query()


def _syncs(work: Callable[[], Any]) -> int:
    """How often `work` waits for the GPU in a call that torch knows of."""
    former = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode(former)
    return sum("synchronizing" in str(warning.message) for warning in seen)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _collect(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()

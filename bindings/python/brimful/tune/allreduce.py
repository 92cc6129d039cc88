"""What waiting for other ranks' gradients costs a step, and what each remedy gains; under torchrun."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from ..agreement import running
from .subject import moved, resized

STEPS = 6
CAVEATS = {
    "bucket_cap_mb": "no change of numbers",
    "fp16_compress_hook": "gradients are rounded to float16: those above 65,504 overflow, those below 6e-8 vanish",
    "bf16_compress_hook": "gradients are rounded to 8 bits of mantissa; their range stays",
    "no_sync": "for accumulation alone: gradients are summed on each rank, and reduced with the last micro-batch",
}


def measure(make: Any, batch: Any, sizes: list[int]) -> dict[str, Any] | None:
    """Exposed all-reduce over batch sizes, and remedies at the last of them; None with one rank.

    `make()` makes a fresh subject, whose model is wrapped here. All ranks must call.
    """
    distributed = running()
    if distributed is None or distributed.get_world_size() < 2:
        return None
    subject = _wrapped(make())
    rows = []
    for size in sizes:
        there = moved(resized(batch, size), subject.device)
        step_s, alone_s = _step_s(subject, there), _step_s(subject, there, is_synced=False)
        rows.append({"batch_size": size, "step_s": step_s, "exposed_s": max(0.0, step_s - alone_s)})
    there = moved(resized(batch, sizes[-1]), subject.device)
    plain = rows[-1]["step_s"]
    gains = {"no_sync": plain / max(plain - rows[-1]["exposed_s"], 1e-9) - 1}
    for name, options, hook in _remedies():
        changed = _wrapped(make(), hook=hook, **options)
        gains[name] = plain / _step_s(changed, there) - 1
    tried = [{"change": name, "gain": gain, "caveat": CAVEATS[name.split("=")[0]]} for name, gain in gains.items()]
    return {"world_size": distributed.get_world_size(), "sizes": rows, "tried": tried}


def _remedies() -> list[tuple[str, dict[str, Any], Any]]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return [
        ("bucket_cap_mb=100", {"bucket_cap_mb": 100}, None),
        ("fp16_compress_hook", {}, default_hooks.fp16_compress_hook),
        ("bf16_compress_hook", {}, default_hooks.bf16_compress_hook),
    ]


def _wrapped(subject: Any, hook: Any = None, **options: Any) -> Any:
    ids = [subject.device.index or 0] if subject.device.type == "cuda" else None
    subject.run = torch.nn.parallel.DistributedDataParallel(subject.run, device_ids=ids, **options)
    if hook is not None:
        subject.run.register_comm_hook(None, hook)
    return subject


def _step_s(subject: Any, batch: Any, is_synced: bool = True) -> float:
    """The slowest rank's time of a step, the median of a few."""
    times = []
    for n in range(STEPS + 2):
        if subject.device.type == "cuda":
            torch.cuda.synchronize(subject.device)
        begin = time.perf_counter()
        if is_synced:
            subject.step(batch)
        else:
            with subject.run.no_sync():
                subject.step(batch)
        if subject.device.type == "cuda":
            torch.cuda.synchronize(subject.device)
        if n >= 2:
            times.append(time.perf_counter() - begin)
    slowest = torch.tensor([statistics.median(times)], dtype=torch.float64, device=subject.device)
    distributed = running()
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    return float(slowest)

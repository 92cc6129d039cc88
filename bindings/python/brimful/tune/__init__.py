"""The stress test of a model and its data: what batch size to take, and what holds the run back.

`run(step_fn, loader)` tests a training step as it is; `brimful tune --model torchvision:resnet50 SHARDS` a model by
name. Three stages share a time budget: the machine, the data path, and both together.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import torch

from .. import _native
from ..command import machine
from ..step_clock import Probe, where_models_run
from . import allreduce, data_path, health, scan
from .outcome import Outcome
from .subject import FunctionSubject, ModelSubject, make_model

__all__ = ["Outcome", "run", "run_model"]

SHARES = (0.1, 0.25, 0.65)
"""Of the budget, for each stage."""


def run(
    step_fn: Callable[[Any], Any],
    loader: Any,
    *,
    device: str | torch.device | None = None,
    budget_s: float = 240.0,
    target: float = 0.95,
    headroom: float = 0.1,
    sampler: Any = None,
) -> Outcome:
    """Tests a training step on the batches of a `brimful.DataLoader`.

    Args:
        step_fn: trains on one batch as the loader gives it, of any number of rows.
        loader: where batches come from; an epoch of it is begun.
        device: where the model is; the current GPU if one is in use, else the CPU.
        budget_s: how long all stages may take together, about.
        target, headroom: as in `AutoBatch`.
        sampler: readings of a GPU that take the place of the probe's own.

    Raises:
        Whatever `step_fn` raises, but for running out of memory above the smallest size.
    """
    place = torch.device(device if device is not None else where_models_run("cpu"))
    subject = FunctionSubject(step_fn, place)
    return _run("the step function", subject, None, loader, budget_s, target, headroom, sampler, [], {})


def run_model(
    model: str,
    loader: Any,
    *,
    device: str | torch.device = "cuda",
    budget_s: float = 240.0,
    target: float = 0.95,
    headroom: float = 0.1,
    tries: list[str] | None = None,
    sampler: Any = None,
    flops: float = 0.0,
    memory_bytes: float = 0.0,
) -> Outcome:
    """Tests a classifier under SGD: `torchvision:NAME`, `timm:NAME` or `module:function`.

    Args:
        tries: changes whose gain is measured: "compile", "channels_last", "amp", "cudagraphs".
        flops: operations of a sample, forward and backward, for the roofline; 0 counts those that torch knows of.
        memory_bytes: bytes of device memory that a sample moves, for the roofline; 0 leaves that bound out.

    Other arguments are those of `run`.
    """
    place = torch.device(device)
    build = make_model(model)

    def make(**options: Any) -> ModelSubject:
        return ModelSubject(build, place, **options)

    work = {"flops": flops, "memory_bytes": memory_bytes}
    return _run(model, make(), make, loader, budget_s, target, headroom, sampler, tries or [], work)


def _run(
    name: str,
    subject: Any,
    make: Callable[..., Any] | None,
    loader: Any,
    budget_s: float,
    target: float,
    headroom: float,
    sampler: Any,
    tries: list[str],
    work: dict[str, float],
) -> Outcome:
    probe = Probe(subject.device, sampler)
    begin = time.perf_counter()
    healthy = health.check(subject.device, probe, SHARES[0] * budget_s)
    data = data_path.measure(loader, SHARES[1] * budget_s)
    left = budget_s * SHARES[2]
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    batch = next(iter(loader))
    rows = scan.curve(subject, batch, probe, left * 0.4)
    good = [row for row in rows if not row.get("out_of_memory")]
    if not good:
        from ..errors import LimitError

        raise LimitError(
            f"batches of {rows[0]['batch_size']} samples do not fit in memory: there is nothing to measure",
            hint="take a smaller model or image, or activation checkpointing",
        )
    size, limit = scan.search(rows, target, headroom)
    chosen = max((row for row in good if row["batch_size"] <= size), key=lambda row: row["batch_size"])
    run_row = scan.end_to_end(subject, iter(batches), left * 0.2)
    document: dict[str, Any] = {
        "version": _native.__version__,
        "machine": machine(),
        "model": name,
        "health": healthy,
        "data_path": data,
        "curve": rows,
        "device_per_s": chosen["per_s"],
        "end_to_end": run_row,
        "limit": limit,
        "copies_are_pinned": scan.is_pinned(batch),
        "batch_bytes": scan.image_bytes(batch) * size,
        "parts": scan.split(subject, batch, size),
        "launches": scan.launches(subject, batch, size),
        "memory": scan.memory_of(subject.device),
    }
    if make is not None:
        document["tried"] = scan.try_changes(make, batch, size, tries, probe, left * 0.2) if tries else {}
        document["knees"] = _knees(make, batch, probe, left * 0.1, target, headroom, size, chosen, subject.device)
        document["alignment"] = scan.align(subject, batch, probe, size, left * 0.05)
        document["allreduce"] = allreduce.measure(make, batch, [row["batch_size"] for row in good[:3]])
        document["roofline"] = _roofline(subject, batch, chosen, work, healthy)
    readings = _readings(document, subject, rows, chosen)
    document["readings"] = readings
    document["findings"] = json.loads(_native.findings(json.dumps(readings)))
    gainful = [finding["kind"] for finding in document["findings"] if finding["gain"] > 0.03]
    document["bottleneck"] = gainful[0] if gainful else limit
    document["recommended"] = {
        "batch_size": size,
        "accumulation": max(1, round((loader.batch_size or size) / size)) if loader.batch_size else 1,
        "images_per_s": min(chosen["per_s"], run_row["per_s"]) if gainful else chosen["per_s"],
    }
    document["commands"] = _commands() if subject.device.type == "cuda" else []
    document["seconds"] = time.perf_counter() - begin
    return Outcome(document)


def _readings(
    document: dict[str, Any], subject: Any, rows: list[dict[str, Any]], chosen: dict[str, Any]
) -> dict[str, Any]:
    """The measurements of all stages, under the names that findings know."""
    run, parts = document["end_to_end"], document["parts"] or {}
    told = {**health.readings(document["health"]), **data_path.readings(document["data_path"])}
    told |= {"run_per_s": run["per_s"], "wait_share": run["wait_share"], "step_s": run["step_s"]}
    told |= {
        "device_per_s": max(row["per_s"] for row in rows if "per_s" in row),
        "cpu_busy": document["data_path"].get("cpu_busy"),
    }
    told |= {name: document["launches"].get(name) for name in ("kernel_share", "syncs_per_step", "sync_idle_s")}
    told |= document["memory"]
    told["dram"] = chosen.get("dram")
    doubled = next((row for row in rows if row["batch_size"] == 2 * chosen["batch_size"] and "step_s" in row), None)
    told["doubled_step_ratio"] = doubled["step_s"] / chosen["step_s"] if doubled else None
    if subject.device.type == "cuda" and parts:
        told |= {"exposed_copy_s": parts["copy"], "copies_are_pinned": document["copies_are_pinned"]}
        if parts["copy"] > 0:
            told["copy_bytes_per_s"] = document["batch_bytes"] / parts["copy"]
    told["has_nonfinite"] = getattr(subject, "has_nonfinite", None)
    clocks = [row["sm_clock_mhz"] for row in rows if "sm_clock_mhz" in row]
    if clocks:
        told["sm_clock_max_mhz"] = max(clocks)
    if any(row.get("is_throttled") for row in rows):
        told["is_throttled"] = True
    if document["limit"] == "memory":
        told["larger_batch_gain"] = told["device_per_s"] / chosen["per_s"] - 1
    ranks = document.get("allreduce")
    if ranks:
        told |= {"world_size": ranks["world_size"], "exposed_allreduce_s": ranks["sizes"][-1]["exposed_s"]}
    told["tried"] = {name: row["gain"] for name, row in (document.get("tried") or {}).items() if "gain" in row}
    return {name: value for name, value in told.items() if value is not None}


def _knees(
    make: Callable[..., Any],
    batch: Any,
    probe: Probe,
    seconds: float,
    target: float,
    headroom: float,
    size: int,
    chosen: dict[str, Any],
    device: torch.device,
) -> dict[str, dict[str, Any]]:
    """The size to take for each precision; on the CPU, where 16-bit floats are slow, for one."""
    found = {"off": {"batch_size": size, "per_s": chosen["per_s"]}}
    for amp in ("fp16", "bf16") if device.type == "cuda" else ():
        rows = scan.curve(make(amp=amp), batch, probe, seconds / 2)
        if any("per_s" in row for row in rows):
            knee, _ = scan.search(rows, target, headroom)
            near = max((row for row in rows if row["batch_size"] <= knee), key=lambda row: row["batch_size"])
            found[amp] = {"batch_size": knee, "per_s": near["per_s"]}
    return found


def _roofline(
    subject: Any, batch: Any, chosen: dict[str, Any], work: dict[str, float], healthy: dict[str, Any]
) -> dict[str, Any] | None:
    if healthy.get("gpu") is None:
        return None
    flops = work["flops"] or _flops(subject, batch)
    bounds = _native.roofline(healthy["gpu"], "float32", flops, work["memory_bytes"], 0.0)
    if bounds is None:
        return None
    told = json.loads(bounds)
    return {**told, "flops": flops, "share": chosen["per_s"] / told["per_s"]}


def _flops(subject: Any, batch: Any) -> float:
    """Operations of one sample that torch knows of, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    from .subject import moved, resized

    rows = 2
    with FlopCounterMode(display=False) as counter:
        subject.step(moved(resized(batch, rows), subject.device))
    return counter.get_total_flops() / rows


def _commands() -> list[str]:
    """How to look closer: what profilers are to be told for this run."""
    import shlex
    import sys

    line = shlex.join([sys.executable, *sys.argv])
    return [
        f"nsys profile -t cuda,nvtx,osrt --capture-range=none -o brimful -- {line}",
        f"ncu --set full --launch-skip 200 --launch-count 50 -o brimful -- {line}",
    ]

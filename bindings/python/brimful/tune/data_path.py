"""Stage 2: how fast is the data path without a model? Each stage alone, all together, and torch on the same files."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..adaptive import rows_of
from ..cgroup import limits
from ..command import cores
from ..dataset import ShardDataset

BLOCK_BYTES = 4 << 20
BATCHES_LEAST = 3


def measure(loader: Any, seconds: float) -> dict[str, Any]:
    """Rates in samples a second; `loader` is a `brimful.DataLoader`."""
    dataset = loader.dataset
    if not isinstance(dataset, ShardDataset) or loader._engine is None:
        together = _rate(loader, seconds)
        note = "torch's machinery runs this loader, so its stages cannot be told apart"
        return {"loader_per_s": together["per_s"], "loader": together, "threads": [], "note": note}
    found: dict[str, Any] = {"cores": usable_cores(), "threads": []}
    share = seconds / 4
    found["storage_per_s"], found["storage_bytes_per_s"] = _storage(loader, share)
    for threads in _sweep(loader._engine.native.threads[0]):
        found["threads"].append(_with_threads(loader, threads, share / 2))
    last = found["threads"][-1]
    found |= {"loader_per_s": last["per_s"], "decode_per_s": last["decode_per_s"], "decode_threads": last["threads"]}
    found["cpu_busy"] = last["cpu_busy"]
    found["torch_per_s"] = _torch(dataset, loader, share)
    return found


def readings(found: dict[str, Any]) -> dict[str, Any]:
    """What of it tells findings."""
    names = ("storage_per_s", "decode_per_s", "loader_per_s", "decode_threads")
    told = {name: found[name] for name in names if found.get(name)}
    return {**told, "cores": float(found.get("cores", usable_cores()))}


def usable_cores(root: Path = Path("/")) -> float:
    """Processors that this process may use: those it may run on, within its cgroup's quota."""
    quota = limits(root).cores
    return float(cores()) if quota is None else min(float(cores()), quota)


def _sweep(threads: int) -> list[int]:
    """Powers of two up to the loader's own number of threads, which comes last."""
    return [*itertools.takewhile(lambda n: n < threads, (2**n for n in range(10))), threads]


def _with_threads(loader: Any, threads: int, seconds: float) -> dict[str, Any]:
    from ..engine import Batches, Engine

    # On the CPU: what a GPU adds is copies, which run beside.
    options = {**loader._engine.options, "num_workers": threads, "device": "cpu", "nvtx": False}
    options |= {"route": "cpu", "dtype": "uint8" if loader._engine.options["device"] != "cpu" else options["dtype"]}
    engine = Engine(loader.dataset, options)
    cpu = time.process_time()
    told = _rate(_epochs(lambda: Batches(engine, lambda batch: batch)), seconds)
    busy = (time.process_time() - cpu) / (told["seconds"] * max(1, cores()))
    stats = engine.native.stats()
    stages = stats["stages"]
    decode = stages["decode"]
    # What all threads would do if they did nothing but decode and transform.
    work_share = decode["busy_share"] + stages["transform"]["busy_share"]
    alone = decode["items"] / (work_share * stats["wall_s"]) if work_share > 0 and decode["items"] else None
    return {
        "threads": threads,
        "per_s": told["per_s"],
        "decode_per_s": alone,
        "cpu_busy": min(1.0, busy),
        "bottleneck": stats["bottleneck"],
    }


def _rate(batches: Any, seconds: float) -> dict[str, float]:
    """Samples a second of what can be iterated, its first batch left out."""
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        return {"per_s": 0.0, "seconds": 1e-9}
    begin, rows = time.perf_counter(), 0
    for count, batch in enumerate(iterator, start=1):
        rows += _rows(batch)
        if time.perf_counter() - begin >= seconds and count >= BATCHES_LEAST:
            break
    took = max(time.perf_counter() - begin, 1e-9)
    if rows == 0:
        # One batch was all there is.
        return {"per_s": _rows(first) / took if took > 1e-3 else 0.0, "seconds": took}
    return {"per_s": rows / took, "seconds": took}


def _epochs(make: Any) -> Iterator[Any]:
    while True:
        empty = True
        for batch in make():
            empty = False
            yield batch
        if empty:
            return


def _rows(batch: Any) -> int:
    return len(batch) if hasattr(batch, "columns") else rows_of(batch)


def _storage(loader: Any, seconds: float) -> tuple[float, float]:
    """Samples and bytes a second of plain reads of the shards, as they lie: cached pages count as storage."""
    paths = [os.fspath(path) for path in loader.dataset.native.paths]
    total = sum(os.path.getsize(path) for path in paths)
    samples = len(loader.dataset) if not loader.dataset.is_stream else None
    begin, read = time.perf_counter(), 0
    for path in paths:
        with open(path, "rb", buffering=0) as shard:
            while block := shard.read(BLOCK_BYTES):
                read += len(block)
                if time.perf_counter() - begin >= seconds:
                    break
        if time.perf_counter() - begin >= seconds:
            break
    per_s = read / max(time.perf_counter() - begin, 1e-9)
    return (per_s * samples / total if samples and total else 0.0), per_s


def _torch(dataset: ShardDataset, loader: Any, seconds: float) -> float | None:
    """torch's DataLoader over the same data set, in as many processes as there are processors."""
    if dataset.is_stream:
        return None
    workers = min(cores(), 8)
    plain = torch.utils.data.DataLoader(
        _Rows(dataset), batch_size=min(loader.batch_size or 1, 64), shuffle=True, num_workers=workers
    )
    try:
        return _rate(_epochs(lambda: plain), seconds)["per_s"]
    except RuntimeError:
        # Samples of unequal size do not stack; that is no question of speed.
        return None


class _Rows(torch.utils.data.Dataset):
    """Samples one by one, so that torch cannot ask for them in batches."""

    def __init__(self, dataset: ShardDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> Any:
        return self._dataset[number]

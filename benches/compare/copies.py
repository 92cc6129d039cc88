"""Pinned host-to-device copies: what this machine does, and what brimful's own copies reach of it.

copies.py DATA: DATA comes from make_data.py. The machine's rate is that of single copies of one batch as raw driver
calls and through torch, each timed by events, as brimful times its own. It measures no decoding; see compare.py.
"""

import argparse
import ctypes
import json
import statistics
import sys
import threading
from pathlib import Path

import machine
from machine import say
from peers import SIZE, brimful_loader, endless
from summary import spread

# Buffers that copies take in turn: a batch is never where the last one was.
BUFFERS = 4
WARM = 8
# What brimful copies is compared with the raw rate for as many bytes.
GOAL = 0.95


def main() -> None:
    arguments = parse()
    import torch

    if not torch.cuda.is_available():
        sys.exit("error: torch sees no GPU")
    # The raw copies run in the context that this makes current.
    torch.zeros(1, device="cuda")
    batch = {"uint8": arguments.batch_size * 3 * SIZE * SIZE, "float32": 4 * arguments.batch_size * 3 * SIZE * SIZE}
    job = {"data": str(arguments.data), "device": "cuda", "batch_size": arguments.batch_size}
    job["workers"] = arguments.workers
    results = machine.document(
        data=json.loads((arguments.data / "data.json").read_text()), job=job, batch_bytes=batch, rounds=[]
    )
    raw, pinned = RawCopies(max(batch.values())), PinnedCopies(max(batch.values()))
    loaders = {
        # Bytes stay bytes: a batch is one copy, with no kernel behind it.
        "uint8": Loaded(job, dtype="uint8", layout="NHWC"),
        "float32": Loaded(job),
    }
    busy = Busy({**job, "device": "cpu"})
    for number in range(arguments.rounds):
        row = {"round": number}
        for name, size in batch.items():
            row[f"raw_{name}"] = raw.gb_per_s(size, arguments.copies)
            row[f"torch_{name}"] = pinned.gb_per_s(size, arguments.copies)
        with busy:
            row["raw_uint8_beside_decoding"] = raw.gb_per_s(batch["uint8"], arguments.copies)
        for name, loaded in loaders.items():
            row |= {f"brimful_{name}_{key}": value for key, value in loaded.measure(arguments.seconds).items()}
        row["ratio"] = round(row["brimful_uint8_gb_per_s"] / row["raw_uint8"], 4)
        row["ratio_beside_decoding"] = round(row["brimful_uint8_gb_per_s"] / row["raw_uint8_beside_decoding"], 4)
        row["ratio_float32_with_kernel"] = round(row["brimful_float32_gb_per_s"] / row["raw_uint8"], 4)
        results["rounds"].append(row)
        say(", ".join(f"{name} {value}" for name, value in row.items()))
        results["summary"] = {name: spread([row[name] for row in results["rounds"]]) for name in row if name != "round"}
        machine.save(results, arguments.out)
    for name, value in results["summary"].items():
        print(f"{name:<34} {value['median']:>12,.3f} ({value['min']:,.3f} to {value['max']:,.3f})")
    verdict = "met" if results["summary"]["ratio"]["median"] >= GOAL else "NOT MET"
    print(f"brimful's copies / the machine's: {results['summary']['ratio']['median']:.3f}, goal >= {GOAL}: {verdict}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares brimful's copies to the GPU with what the machine can do.")
    parser.add_argument("data", type=Path, help="a folder that make_data.py made")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each stretch of a loader (%(default)s)")
    parser.add_argument("--copies", type=int, default=40, help="of each size and round (%(default)s)")
    parser.add_argument("--workers", type=int, default=machine.cores(), help="decode threads (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="write every number as JSON to this file")
    return parser.parse_args()


def events():
    import torch

    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def median_rate(size: int, copies: int, begin_copy) -> float:
    """GB/s of the median of single copies, by events around each; `begin_copy` takes the number of the copy."""
    import torch

    times_ms = []
    stream = torch.cuda.Stream()
    for number in range(WARM + copies):
        before, after = events()
        before.record(stream)
        begin_copy(number % BUFFERS, stream)
        after.record(stream)
        stream.synchronize()
        times_ms.append(before.elapsed_time(after))
    return round(size / statistics.median(times_ms[WARM:]) / 1e6, 3)


class RawCopies:
    """cuMemcpyHtoDAsync from memory of cuMemHostAlloc, in torch's context."""

    def __init__(self, size: int) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.host = [ctypes.c_void_p() for _ in range(BUFFERS)]
        self.device = [ctypes.c_uint64() for _ in range(BUFFERS)]
        for host, device in zip(self.host, self.device, strict=True):
            self.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), ctypes.c_uint(0))
            self.call("cuMemAlloc_v2", ctypes.byref(device), ctypes.c_size_t(size))
            # Zeros may be shared pages: every page gets bytes of its own.
            ctypes.memset(host, 0xA5, size)

    def call(self, name: str, *values) -> None:
        code = getattr(self.cuda, name)(*values)
        if code != 0:
            sys.exit(f"error: {name} failed with code {code}")

    def gb_per_s(self, size: int, copies: int) -> float:
        def begin_copy(buffer: int, stream) -> None:
            where = (self.device[buffer], self.host[buffer])
            self.call("cuMemcpyHtoDAsync_v2", *where, ctypes.c_size_t(size), ctypes.c_void_p(stream.cuda_stream))

        return median_rate(size, copies, begin_copy)


class PinnedCopies:
    """`copy_` from torch's pinned tensors."""

    def __init__(self, size: int) -> None:
        import torch

        self.host = [torch.full((size,), 165, dtype=torch.uint8).pin_memory() for _ in range(BUFFERS)]
        self.device = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(BUFFERS)]

    def gb_per_s(self, size: int, copies: int) -> float:
        import torch

        def begin_copy(buffer: int, stream) -> None:
            with torch.cuda.stream(stream):
                self.device[buffer][:size].copy_(self.host[buffer][:size], non_blocking=True)

        return median_rate(size, copies, begin_copy)


class Loaded:
    """brimful's copies: bytes and time of its copy stream while it loads."""

    def __init__(self, job: dict, **options) -> None:
        from brimful import transforms as T

        if options.get("dtype") == "uint8":
            options["steps"] = [T.PILToTensor()]
        self.loader = brimful_loader(job, decoder="cpu", **options)
        self.batches = endless(self.loader)

    def measure(self, seconds: float) -> dict:
        for _ in range(10):
            next(self.batches)
        before = self.counted()
        while self.counted()["wall_s"] - before["wall_s"] < seconds:
            for _ in range(10):
                next(self.batches)
        counted = {name: value - before[name] for name, value in self.counted().items()}
        return {
            "gb_per_s": round(counted["bytes"] / max(counted["busy_s"], 1e-9) / 1e9, 3),
            "batches_per_s": round(counted["batches"] / counted["wall_s"], 2),
            "copy_busy_share": round(counted["busy_s"] / counted["wall_s"], 4),
        }

    def counted(self) -> dict:
        stats = self.loader.stats()
        return {
            "wall_s": stats["wall_s"],
            "batches": stats["batches"],
            "busy_s": stats["stages"]["copy"]["busy_share"] * stats["wall_s"],
            "bytes": stats["device"]["copied_bytes"],
        }


class Busy:
    """A loader for the host that works in the background: copies beside it share the memory's bandwidth."""

    def __init__(self, job: dict) -> None:
        self.batches = endless(brimful_loader(job))
        self.is_over = threading.Event()

    def __enter__(self) -> None:
        for _ in range(4):
            next(self.batches)
        self.is_over.clear()
        self.thread = threading.Thread(target=self.load, daemon=True)
        self.thread.start()

    def load(self) -> None:
        while not self.is_over.is_set():
            next(self.batches)

    def __exit__(self, *_) -> None:
        self.is_over.set()
        self.thread.join()


if __name__ == "__main__":
    main()

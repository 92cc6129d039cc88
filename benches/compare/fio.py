"""The same reads by `brimful bench storage` and by fio, in turn: whether both find the same throughput and tail.

fio.py FOLDER: test shards are made below FOLDER and removed afterwards. Both read the same files with the same system
calls, block sizes, threads and advice; each pair is brimful, then fio. It says nothing of samples: fio knows none.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import machine
from machine import say

# Bounds of the goals: of the ratio of throughputs, and of that of 99th percentiles.
THROUGHPUT_GOAL = (0.95, 1.05)
TAIL_GOAL = 0.15
# How many standard errors reach 95 % of Student's distribution on both sides, by degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
MEMBER_BYTES = 115_000


@dataclass(frozen=True)
class Case:
    """What both sides do."""

    name: str
    method: str
    pattern: str
    threads: int
    block_bytes: int
    cache: str

    def fio(self, files: list[Path], seconds: float) -> list[str]:
        command = [
            "fio",
            "--output-format=json",
            "--name=global",
            "--ioengine=psync",
            "--thread",
            "--group_reporting",
            f"--rw={'read' if self.pattern == 'sequential' else 'randread'}",
            f"--bs={self.block_bytes}",
            f"--direct={int(self.method == 'direct')}",
            f"--invalidate={int(self.cache == 'cold')}",
            "--randrepeat=0",
        ]
        if self.cache == "warm":
            command += ["--time_based", f"--runtime={round(seconds * 1000)}ms"]
        for number in range(self.threads):
            command += [f"--name=job{number}", f"--filename={':'.join(map(str, files[number :: self.threads]))}"]
            # All of one file before the next, as a thread of a loader reads shards.
            command += ["--file_service_type=sequential"] if self.pattern == "sequential" else []
        return command

    def brimful(self, binary: str, files: list[Path], seconds: float) -> list[str]:
        return [
            binary,
            "bench",
            "storage",
            "--json",
            "--no-profile",
            "--runs=1",
            f"--methods={self.method}",
            f"--patterns={self.pattern}",
            f"--threads={self.threads}",
            f"--blocks={self.block_bytes}",
            f"--cache={self.cache}",
            # A cold run ends with its data.
            f"--duration={seconds if self.cache == 'warm' else 600}",
            *map(str, files),
        ]


CASES = (
    Case("sequential pread, cold", "pread", "sequential", 1, 256 << 10, "cold"),
    Case("sequential O_DIRECT", "direct", "sequential", 1, 1 << 20, "cold"),
    Case("random pread, cold", "pread", "blocks", 1, 64 << 10, "cold"),
    Case("sequential pread, warm", "pread", "sequential", 2, 256 << 10, "warm"),
    Case("random pread, warm", "pread", "blocks", 2, 64 << 10, "warm"),
)


def main() -> None:
    arguments = parse()
    if not shutil.which("fio"):
        sys.exit("error: fio is missing\nhint: apt install fio")
    results = machine.document(
        fio=subprocess.check_output(["fio", "--version"], text=True).strip(),
        data={"files": arguments.files, "file_bytes": arguments.file_bytes, "filesystem": filesystem(arguments.folder)},
        cases=[],
    )
    with tempfile.TemporaryDirectory(prefix="fio-parity-", dir=arguments.folder) as folder:
        say(f"making {arguments.files} shards of {arguments.file_bytes / 1e6:.0f} MB")
        files = [make(Path(folder) / f"{number}.tar", arguments.file_bytes) for number in range(arguments.files)]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        for case in CASES:
            if arguments.only and not any(word in case.name for word in arguments.only):
                continue
            pairs = []
            for number in range(arguments.pairs):
                ours = measure_brimful(case, arguments, files, environment)
                theirs = measure_fio(case, arguments, files)
                pairs.append({"brimful": ours, "fio": theirs})
                say(f"{case.name} {number}: {ours['mb_per_s']:.0f} and {theirs['mb_per_s']:.0f} MB/s")
            results["cases"].append({**vars(case), "pairs": pairs, **summary(pairs)})
            machine.save(results, arguments.out)
    for case in results["cases"]:
        show(case)


def measure_brimful(case: Case, arguments: argparse.Namespace, files: list[Path], environment: dict) -> dict:
    command = case.brimful(arguments.brimful, files, arguments.seconds)
    row = json.loads(subprocess.check_output(command, env=environment, stderr=subprocess.DEVNULL))["results"][0]
    names = ("mb_per_s", "p50_ms", "p99_ms", "iops", "cpu_s_per_gb", "resident_before", "process_read_bytes")
    return {name: row[name] for name in names}


def measure_fio(case: Case, arguments: argparse.Namespace, files: list[Path]) -> dict:
    job = json.loads(subprocess.check_output(case.fio(files, arguments.seconds)))["jobs"][0]
    read = job["read"]
    percentile = read["clat_ns"]["percentile"]
    return {
        "mb_per_s": read["bw_bytes"] / 1e6,
        "p50_ms": percentile["50.000000"] / 1e6,
        "p99_ms": percentile["99.000000"] / 1e6,
        "iops": read["iops"],
        # Percent of the time of all threads together.
        "cpu_s_per_gb": (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3 / (read["io_bytes"] / 1e9),
    }


def summary(pairs: list[dict]) -> dict:
    """The ratio of throughputs with its 95 % interval, pair by pair, and how the tails agree."""
    ratio = interval([pair["brimful"]["mb_per_s"] / pair["fio"]["mb_per_s"] for pair in pairs])
    tails = [pair["fio"]["p99_ms"] for pair in pairs]
    middle = statistics.median(tails)
    spread = max(abs(tail - middle) for tail in tails) / middle
    tail_ratio = statistics.median(pair["brimful"]["p99_ms"] for pair in pairs) / middle
    costs = [[pair[side]["cpu_s_per_gb"] for pair in pairs] for side in ("brimful", "fio")]
    return {
        "ratio": ratio,
        "cpu_s_per_gb": {side: statistics.median(cost) for side, cost in zip(("brimful", "fio"), costs, strict=True)},
        "met": verdict(ratio, *THROUGHPUT_GOAL),
        "p99_ratio": tail_ratio,
        "fio_p99_spread": spread,
        # Where fio does not agree with itself there is nothing to agree with.
        "p99_met": abs(tail_ratio - 1) <= TAIL_GOAL if spread <= TAIL_GOAL else None,
    }


def verdict(ratio: dict, low: float, high: float) -> bool | None:
    """Whether all of the interval lies within the bounds; None where it is too wide to say."""
    if low <= ratio["low"] and ratio["high"] <= high:
        return True
    return False if ratio["high"] < low or ratio["low"] > high else None


def interval(ratios: list[float]) -> dict:
    """Mean and 95 % interval of ratios, of their logarithms, so that twice and half are equally far from 1."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    margin = 0.0
    if len(logs) > 1:
        margin = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"value": math.exp(mean), "low": math.exp(mean - margin), "high": math.exp(mean + margin)}


def show(case: dict) -> None:
    ratio = case["ratio"]
    tail = {None: f"fio's own p99 differ by {case['fio_p99_spread']:.0%}", True: "agrees", False: "differs"}
    ours, theirs = (statistics.median(pair[side]["mb_per_s"] for pair in case["pairs"]) for side in ("brimful", "fio"))
    print(
        f"{case['name']:24} {ours:7.0f} {theirs:7.0f} MB/s"
        f"  ratio {ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
        f"  p99 ratio {case['p99_ratio']:.2f}, {tail[case['p99_met']]}"
        f"  CPU s/GB {case['cpu_s_per_gb']['brimful']:.3f} and {case['cpu_s_per_gb']['fio']:.3f}"
    )


def make(path: Path, size: int) -> Path:
    """A shard of random bytes, on disk when this returns."""
    with tarfile.open(path, "w") as archive:
        number = 0
        while archive.offset + MEMBER_BYTES < size:
            member = tarfile.TarInfo(f"{number:08}.bin")
            member.size = MEMBER_BYTES
            archive.addfile(member, BytesIO(os.urandom(MEMBER_BYTES)))
            number += 1
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def filesystem(folder: Path) -> str:
    found = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder on the storage to measure")
    parser.add_argument("--brimful", default="brimful", help="the command, built with optimisation")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--file-bytes", type=int, default=400_000_000)
    parser.add_argument("--seconds", type=float, default=2, help="of each warm run; cold ones end with their data")
    parser.add_argument("--only", nargs="*", help="only cases with one of these words in their names")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    began = time.monotonic()
    main()
    say(f"done in {time.monotonic() - began:.0f} s")

"""Whether `brimful bench storage` finds the limit of a disk that the kernel throttles, to within 5 %.

throttled.py FOLDER: test shards are made below FOLDER and removed afterwards. The command runs in a cgroup of its own
that may read only so many bytes a second from the disk below FOLDER (`io.max`, or its like of version 1); that needs
the administrator, a kernel with throttling, and a disk that is faster than the limit by itself: else it says why it is
skipped. It changes nothing outside of its cgroup.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import machine
from fio import filesystem, make
from machine import say

GOAL = (0.95, 1.05)
CASES = (
    ("pread", "sequential", 1),
    ("pread", "members", 4),
    ("direct", "sequential", 1),
    ("direct", "members", 4),
    ("mmap+populate", "sequential", 1),
)
# How much faster than its limit a disk must be by itself, so that it is the limit that is measured.
FASTER = 1.5


class Skipped(Exception):
    """Why nothing can be measured here."""


class Throttle:
    """A cgroup whose processes read at most so many bytes a second from a disk; it goes at the end."""

    def __init__(self, device: str, root: Path = Path("/sys/fs/cgroup")) -> None:
        self.device = device
        self.parent, self.control, self.line = place(root)
        self.folder = self.parent / f"brimful-throttled-{os.getpid()}"

    def __enter__(self) -> "Throttle":
        try:
            self.folder.mkdir()
            if self.control == "io.max":
                (self.parent / "cgroup.subtree_control").write_text("+io")
            self.limit(None)
        except OSError as error:
            self.__exit__()
            raise Skipped(f"this process may not limit reads by cgroup: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder.is_dir():
            self.folder.rmdir()

    def limit(self, bytes_per_s: int | None) -> None:
        (self.folder / self.control).write_text(self.line(self.device, bytes_per_s))

    def run(self, command: list[str], environment: dict) -> str:
        """The command's output; it joins the cgroup before it begins."""
        join = ["sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', str(self.folder)]
        return subprocess.check_output([*join, *command], env=environment, stderr=subprocess.DEVNULL, text=True)


def place(root: Path) -> tuple[Path, str, Callable[[str, int | None], str]]:
    """The folder of cgroups that know of disks, the file of the limit, and what is written to it."""
    if "io" in (read(root / "cgroup.controllers") or "").split():
        return root, "io.max", lambda device, rate: f"{device} rbps={rate or 'max'}"
    if (root / "blkio" / "blkio.throttle.read_bps_device").exists():
        return root / "blkio", "blkio.throttle.read_bps_device", lambda device, rate: f"{device} {rate or 0}"
    raise Skipped("no cgroup here limits reads: neither io.max nor blkio.throttle")


def disk_of(folder: Path, sys_block: Path = Path("/sys/dev/block")) -> str:
    """MAJOR:MINOR of the whole disk below a folder, which is what a limit is for."""
    number = folder.stat().st_dev
    own = f"{os.major(number)}:{os.minor(number)}"
    entry = sys_block / own
    if not entry.exists():
        raise Skipped(f"{folder} lies on no disk of its own ({filesystem(folder)}), so no limit reaches it")
    if (entry / "partition").exists():
        return (read(entry.resolve().parent / "dev") or own).strip()
    return own


def read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def main() -> None:
    arguments = parse()
    try:
        results = measure(arguments)
    except Skipped as reason:
        print(f"skipped: {reason}")
        return
    machine.save(results, arguments.out)
    missed = [row for row in results["cases"] if row["met"] is False]
    sys.exit(1 if missed else 0)


def measure(arguments: argparse.Namespace) -> dict:
    device = disk_of(arguments.folder)
    results = machine.document(
        filesystem=filesystem(arguments.folder), device=device, runs=arguments.runs, goal=GOAL, cases=[]
    )
    with Throttle(device) as throttle, tempfile.TemporaryDirectory(prefix="throttled-", dir=arguments.folder) as folder:
        results["limited_by"] = throttle.control
        say(f"making {arguments.files} shards of {arguments.file_bytes / 1e6:.0f} MB")
        files = [make(Path(folder) / f"{number}.tar", arguments.file_bytes) for number in range(arguments.files)]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        for method, pattern, threads in CASES:
            command = bench(arguments, method, pattern, threads, files)
            throttle.limit(None)
            free = rates(throttle.run(command, environment))
            # The first moments are left out: a limit counts in slices of time, and lets the first ones through at once.
            command.insert(-len(files), "--warm-up=1")
            for limit_mb_per_s in arguments.limits:
                throttle.limit(round(limit_mb_per_s * 1e6))
                runs = rates(throttle.run(command, environment))
                row = {"method": method, "pattern": pattern, "threads": threads, "limit_mb_per_s": limit_mb_per_s}
                row |= {"free_mb_per_s": free, "mb_per_s": runs, **judged(free, limit_mb_per_s, runs)}
                results["cases"].append(row)
                show(row)
    return results


def bench(arguments: argparse.Namespace, method: str, pattern: str, threads: int, files: list[Path]) -> list[str]:
    words = ["--json", "--no-profile", "--cache=cold", "--blocks=256KiB", f"--methods={method}"]
    words += [f"--patterns={pattern}", f"--threads={threads}", f"--runs={arguments.runs}"]
    # Long enough that what the kernel reads ahead, several megabytes at once, is a small part of it.
    words += [f"--duration={arguments.seconds}"]
    return [arguments.brimful, "bench", "storage", *words, *map(str, files)]


def rates(document: str) -> list[float]:
    return json.loads(document)["results"][0]["spread"]["mb_per_s"]["runs"]


def judged(free: list[float], limit: float, runs: list[float]) -> dict:
    """The ratio of what was found to the limit, and whether it is met; None where the disk itself is too slow."""
    ratio = statistics.median(runs) / limit
    if min(free) < FASTER * limit:
        return {"ratio": ratio, "met": None}
    return {"ratio": ratio, "met": GOAL[0] <= ratio <= GOAL[1]}


def show(row: dict) -> None:
    verdict = {True: "met", False: "missed", None: "the disk itself is too slow for this limit"}[row["met"]]
    found, low, high = statistics.median(row["mb_per_s"]), min(row["mb_per_s"]), max(row["mb_per_s"])
    print(
        f"{row['method']:14} {row['pattern']:10} {row['threads']} threads  limit {row['limit_mb_per_s']:5.0f} MB/s"
        f"  found {found:6.1f} ({low:.1f} to {high:.1f})  ratio {row['ratio']:.3f}  {verdict}"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder on the disk to throttle")
    parser.add_argument("--brimful", default="brimful", help="the command, built with optimisation")
    parser.add_argument("--limits", type=float, nargs="+", default=[50.0, 100.0], metavar="MB/S")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--file-bytes", type=int, default=650_000_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    needed = max(arguments.limits) * 1e6 * (arguments.seconds + 2)
    if arguments.files * arguments.file_bytes < needed:
        parser.error(f"the data end before the runs do: {math.ceil(needed / 1e6)} MB are needed")
    return arguments


if __name__ == "__main__":
    main()

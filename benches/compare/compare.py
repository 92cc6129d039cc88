"""One job on brimful and its peers, in rounds that take turns, on the same cores.

compare.py DATA: DATA comes from make_data.py. Every peer runs once a round in a process of its own, so that whatever
else the machine does meets all of them; the first of a round changes from round to round. Prints medians with their
spread, and the ratio to brimful taken round by round; --out keeps every number with the command and the machine.
"""

import argparse
import importlib.metadata
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import machine
from peers import PEERS

US = "brimful"
PACKAGES = ("brimful", "torch", "torchvision", "webdataset", "pillow", "numpy")


def main() -> None:
    arguments = parse()
    document = {
        "version": 1,
        "command": shlex.join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": machine(),
        "packages": {name: version for name in PACKAGES if (version := package_version(name))},
        "data": json.loads((arguments.data / "data.json").read_text()),
        "job": {
            "data": str(arguments.data),
            "batch_size": arguments.batch_size,
            "workers": arguments.workers,
            "warm_batches": arguments.warm_batches,
            "seconds": arguments.seconds,
        },
        "measured": [],
    }
    read_through(arguments.data)
    for number in range(arguments.rounds):
        shift = number % len(arguments.peers)
        for peer in arguments.peers[shift:] + arguments.peers[:shift]:
            result = {"round": number, **run(peer, document["job"])}
            document["measured"].append(result)
            print_result(result)
            # Kept after every run: a failure later on loses nothing.
            save(document, arguments.out)
    document["summary"] = summarise(document["measured"], arguments.peers)
    save(document, arguments.out)
    print_summary(document)
    if any("error" in result for result in document["measured"]):
        sys.exit(1)


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="Compares whole loaders on the same data and cores.")
    parser.add_argument("data", type=Path, help="a folder that make_data.py made")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, a peer and round (%(default)s)")
    parser.add_argument("--warm-batches", type=int, default=4, help="not measured (%(default)s)")
    parser.add_argument("--workers", type=int, default=cores, help="threads or processes (all cores: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="PEER")
    parser.add_argument("--out", type=Path, help="write every number as JSON to this file")
    arguments = parser.parse_args()
    if not (arguments.data / "data.json").exists():
        parser.error(f"{arguments.data} has no data.json: make it with make_data.py")
    return arguments


def run(peer: str, job: dict) -> dict:
    command = [sys.executable, str(Path(__file__).with_name("peers.py")), peer, json.dumps(job)]
    limit_s = 120 + 20 * job["seconds"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"peer": peer, "error": f"no result within {limit_s:.0f} s"}
    if done.returncode != 0:
        return {"peer": peer, "error": (done.stderr.strip() or "no message").splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def read_through(data: Path) -> None:
    """Brings the data into the page cache: storage is measured elsewhere."""
    for path in data.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 22):
                    pass


def summarise(measured: list[dict], peers: list[str]) -> dict:
    good = [result for result in measured if "error" not in result]
    rate = {(result["peer"], result["round"]): result["images_per_s"] for result in good}
    summary = {}
    for peer in peers:
        own = [result for result in good if result["peer"] == peer]
        if not own:
            continue
        pairs = [(rate.get((US, result["round"])), result["images_per_s"]) for result in own]
        ratios = [ours / theirs for ours, theirs in pairs if ours]
        summary[peer] = {
            "images_per_s": spread([result["images_per_s"] for result in own]),
            "cpu_s_per_1000": spread([result["cpu_s_per_1000"] for result in own]),
            "first_batch_s": spread([result["first_batch_s"] for result in own]),
            "times_slower_than_brimful": spread(ratios) if ratios else None,
        }
    return summary


def spread(values: list[float]) -> dict:
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def save(document: dict, out: Path | None) -> None:
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(out.name + ".partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(out)


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def print_result(result: dict) -> None:
    if "error" in result:
        line = f"failed: {result['error']}"
    else:
        line = f"{result['images_per_s']:>9.1f} images/s, {result['cpu_s_per_1000']:.2f} CPU s per 1,000"
        line += f", others used {result['others_cores']:.2f} cores"
    print(f"round {result['round'] + 1}: {result['peer']:<34} {line}", file=sys.stderr, flush=True)


def print_summary(document: dict) -> None:
    facts, job = document["machine"], document["job"]
    print(
        f"\n{facts['cpu']}, {facts['cores']} cores; {job['workers']} workers, batches of {job['batch_size']};", end=" "
    )
    print(f"{document['data']['files']} files of {document['data']['bytes_mean'] / 1000:.0f} KB in page cache")
    print(f"{'median (min to max)':<34} {'images/s':>26} {'CPU s per 1,000':>24} {'brimful is faster by':>24}")
    for peer, row in document["summary"].items():
        cells = [cell(row["images_per_s"], 0), cell(row["cpu_s_per_1000"], 2)]
        ratio = row["times_slower_than_brimful"]
        cells.append(cell(ratio, 2) if ratio and peer != US else "")
        print(f"{peer:<34} {cells[0]:>26} {cells[1]:>24} {cells[2]:>24}")


def cell(value: dict, digits: int) -> str:
    median, low, high = (f"{value[key]:,.{digits}f}" for key in ("median", "min", "max"))
    return f"{median} ({low} to {high})"


if __name__ == "__main__":
    main()

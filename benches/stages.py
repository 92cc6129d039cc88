"""Collects what Criterion measured of each stage into one JSON file with command, date and machine.

    python benches/stages.py target/criterion --command "cargo bench ..." --out benches/runs/FILE.json

Only results newer than `--since` (seconds since 1970) count: a bench that is no longer there leaves its files behind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from compare.machine import machine


def main() -> None:
    arguments = parse()
    found = sorted(arguments.criterion.rglob("new/estimates.json"))
    rows = [row(estimates) for estimates in found if estimates.stat().st_mtime >= arguments.since]
    if not rows:
        sys.exit(f"error: no results under '{arguments.criterion}'")
    document = {
        "version": 1,
        "command": arguments.command,
        "date": time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime()),
        "machine": machine(),
        "results": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    for result in rows:
        print(f"{result['name']:<40} {rate_text(result)}")
    print(f"-> {arguments.out}", file=sys.stderr)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("criterion", type=Path, help="Criterion's folder of results")
    parser.add_argument("--command", required=True, help="how they were measured")
    parser.add_argument("--since", type=float, default=0, help="leave out older results; seconds since 1970")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def row(estimates: Path) -> dict:
    """The median time of one iteration in nanoseconds, with its 95 % interval, and what that is as a rate."""
    bench = json.loads((estimates.parent / "benchmark.json").read_text())
    median = json.loads(estimates.read_text())["median"]
    interval = median["confidence_interval"]
    median_ns = median["point_estimate"]
    result = {
        "name": bench["full_id"],
        "median_ns": median_ns,
        "interval_ns": [interval["lower_bound"], interval["upper_bound"]],
    }
    throughput = bench["throughput"] or {}
    if "Elements" in throughput:
        result["items_per_s"] = throughput["Elements"] * 1e9 / median_ns
    if "Bytes" in throughput:
        result["mb_per_s"] = throughput["Bytes"] * 1e3 / median_ns
    return result


def rate_text(result: dict) -> str:
    if "mb_per_s" in result:
        return f"{result['mb_per_s']:14,.0f} MB/s"
    if "items_per_s" in result:
        return f"{result['items_per_s']:14,.0f} items/s"
    return f"{result['median_ns']:14,.0f} ns"


if __name__ == "__main__":
    main()

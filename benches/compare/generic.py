"""What brimful.DataLoader costs where torch's machinery does the work: the same loops over a data set of plain numbers.

generic.py: torch's class and brimful's take turns, in the main process and with worker processes; making the loader and
beginning an epoch count. Prints medians of the ratios, round by round, with their range; --out keeps every number with
the command and the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import machine
import torch

import brimful

KINDS = {"torch": torch.utils.data.DataLoader, "brimful": brimful.DataLoader}


class Numbers(torch.utils.data.Dataset):
    """As little work as a data set can be."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


def main() -> None:
    arguments = parse()
    results = machine.document(samples=arguments.samples, batch_size=arguments.batch_size, measured=[], ratios={})
    for workers in arguments.workers:
        for kind in KINDS.values():
            epoch_s(kind, workers, arguments)
        for number in range(arguments.rounds):
            order = list(KINDS)[:: 1 if number % 2 else -1]
            seconds = {name: epoch_s(KINDS[name], workers, arguments) for name in order}
            results["measured"].append({"round": number, "workers": workers, "epoch_s": seconds})
        measured = [row["epoch_s"] for row in results["measured"] if row["workers"] == workers]
        ratios = [row["brimful"] / row["torch"] for row in measured]
        found = {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
        results["ratios"][str(workers)] = found
        spread = f"{found['median']:.3f} ({found['lowest']:.3f}-{found['highest']:.3f})"
        print(f"{workers} workers: {spread} of torch's time", flush=True)
        machine.save(results, arguments.out)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures what brimful's class costs on torch's path.")
    parser.add_argument("--rounds", type=int, default=15, help="(%(default)s)")
    parser.add_argument("--samples", type=int, default=200_000, help="of an epoch (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="(%(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="a file for every number, as JSON")
    return parser.parse_args()


def epoch_s(kind: type, workers: int, arguments: argparse.Namespace) -> float:
    begin = time.perf_counter()
    loader = kind(Numbers(arguments.samples), arguments.batch_size, shuffle=True, num_workers=workers)
    batches = sum(1 for _ in loader)
    assert batches == len(loader)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()

"""Training at brimful's default num_workers against counts set by hand: what the default costs, if anything.

workers.py DATA: DATA comes from make_data.py. Every count has its turn once a round, in one process and on one model.
It compares brimful with itself alone; see compare.py.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import machine
from machine import say, tree_cpu_s
from peers import brimful_loader, endless
from summary import spread

DEFAULT = "default"
GOAL = 0.97
# The split between processor and JPEG engines settles within 50 batches.
WARM_STEPS = 60


def main() -> None:
    arguments = parse()
    from brimful.bench_model import Trainee

    job = {"data": str(arguments.data), "device": arguments.device, "batch_size": arguments.batch_size}
    results = machine.document(
        data=json.loads((arguments.data / "data.json").read_text()),
        job={**job, "model": arguments.train, "decoder": arguments.decoder},
        seconds=arguments.seconds,
        measured=[],
    )
    trainee = Trainee(arguments.train, arguments.device)
    counts = [DEFAULT, *map(str, arguments.counts)]
    for number in range(arguments.rounds):
        shift = number % len(counts)
        for count in counts[shift:] + counts[:shift]:
            loader = brimful_loader({**job, "workers": 0 if count == DEFAULT else int(count)}, arguments.decoder)
            batches = endless(loader)
            row = trainee.train(
                batches,
                seconds=arguments.seconds,
                warm_steps=arguments.warm_steps,
                cpu_s=tree_cpu_s,
                stats=loader.stats,
            )
            row = {"round": number, "workers": count, "threads": loader.stats()["decode_threads"], **row}
            # Its threads end before the next one's begin.
            del loader, batches
            results["measured"].append(row)
            say(f"round {number + 1} {count:>7} ({row['threads']} threads): {row['images_per_s']:>9.1f} images/s")
            results["summary"] = summarise(results["measured"])
            machine.save(results, arguments.out)
    print_summary(results)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains at the default num_workers, and at counts set by hand.")
    parser.add_argument("data", type=Path, help="a folder that make_data.py made")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="(%(default)s)")
    parser.add_argument("--train", default="resnet18", metavar="MODEL", help="(%(default)s)")
    parser.add_argument("--decoder", default="auto", help="auto, cpu or gpu (%(default)s)")
    counts = range(2, machine.cores() + 1, 2)
    parser.add_argument("--counts", nargs="+", type=int, default=list(counts), metavar="N", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (%(default)s)")
    parser.add_argument("--warm-steps", type=int, default=WARM_STEPS, help="not measured (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="write every number as JSON to this file")
    arguments = parser.parse_args()
    if min(arguments.counts) < 1:
        parser.error("--counts must be 1 or more")
    return arguments


def summarise(measured: list[dict]) -> dict:
    rates: dict[str, list[float]] = {}
    for row in measured:
        rates.setdefault(row["workers"], []).append(row["images_per_s"])
    by_hand = {count: statistics.median(values) for count, values in rates.items() if count != DEFAULT}
    summary = {"images_per_s": {count: spread(values) for count, values in rates.items()}}
    if by_hand and DEFAULT in rates:
        best = max(by_hand, key=by_hand.get)
        pairs = zip(rates[DEFAULT], rates[best], strict=False)
        summary |= {"best": int(best), "default_over_best": spread([ours / theirs for ours, theirs in pairs])}
    return summary


def print_summary(results: dict) -> None:
    summary = results["summary"]
    for count, value in summary["images_per_s"].items():
        print(f"{count:>8} {value['median']:>10,.0f} images/s ({value['min']:,.0f} to {value['max']:,.0f})")
    if "best" in summary:
        ratio = summary["default_over_best"]
        verdict = "met" if ratio["median"] >= GOAL else "NOT MET"
        print(f"default / best by hand ({summary['best']}): {ratio['median']:.3f}, goal >= {GOAL}: {verdict}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

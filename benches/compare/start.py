"""How soon a loader gives its first batch, and how much memory it keeps: brimful alone, from Python.

start.py DATA: DATA comes from make_data.py. Its first shard stands under as many names as are asked for, which costs
no disk and no page cache; each name is opened, mapped and indexed for itself. Every start is a process of its own,
measured from the first line that names the data to the first batch, imports apart. See compare.py for other loaders.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
from machine import say
from summary import spread

# What is measured, in the order of the table: indexes kept or not, shards, rows of a batch.
STARTS = {
    "no index": {"is_cached": False, "shards": None, "batch_size": 256},
    "index cached": {"is_cached": True, "shards": None, "batch_size": 256},
    "index cached, 3 shards": {"is_cached": True, "shards": 3, "batch_size": 256},
    "index cached, one shard, 64 rows": {"is_cached": True, "shards": 1, "batch_size": 64},
}


def main() -> None:
    arguments = parse()
    if arguments.inside:
        print(json.dumps({"start": start, "memory": memory}[arguments.inside](json.loads(arguments.job))))
        return
    shard = min((arguments.data / "shards").glob("*.tar"))
    results = machine.document(
        data=json.loads((arguments.data / "data.json").read_text()),
        job={"shards": arguments.shards, "shard": shard.name, "workers": machine.cores(), "starts": STARTS},
        measured=[],
    )
    # Beside the data: links do not cross file systems.
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        for number in range(arguments.shards):
            os.link(shard, Path(folder, f"train-{number:06d}.tar"))
        for number in range(arguments.rounds + 1):
            for name, options in STARTS.items():
                shards = options["shards"] or arguments.shards
                pattern = f"{folder}/train-{{000000..{shards - 1:06d}}}.tar"
                row = {"name": name, **ask("start", {**options, "pattern": pattern, "cache": f"{folder}/cache"})}
                # The first round fills page cache and index cache.
                if number:
                    results["measured"].append({"round": number, **row})
                    say(f"round {number} {name:<34} {row['first_batch_s']:.3f} s")
        pattern = f"{folder}/train-000000.tar"
        results["memory"] = ask("memory", {"pattern": pattern, "cache": f"{folder}/cache", "epochs": arguments.epochs})
    results["summary"] = {
        name: spread([row["first_batch_s"] for row in results["measured"] if row["name"] == name]) for name in STARTS
    }
    machine.save(results, arguments.out)
    for name, found in results["summary"].items():
        print(f"{name:<34} {found['median']:.3f} s ({found['min']:.3f}-{found['max']:.3f})")
    print("anonymous memory after each epoch, MB:", *(f"{size / 1e6:.0f}" for size in results["memory"]["anonymous"]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the first batch of a loader, and its memory.")
    parser.add_argument("data", type=Path, help="a folder that make_data.py made")
    parser.add_argument("--shards", type=int, default=150, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="for the memory (%(default)s)")
    parser.add_argument("--out", type=Path, help="keep every number as JSON")
    parser.add_argument("--inside", choices=("start", "memory"), help=argparse.SUPPRESS)
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    return parser.parse_args()


def ask(what: str, job: dict) -> dict:
    """Runs `what` in a process of its own."""
    command = [sys.executable, __file__, ".", "--inside", what, "--job", json.dumps(job)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def start(job: dict) -> dict:
    import time

    import torch  # noqa: F401

    # Whoever trains has imported both.
    import brimful  # noqa: F401

    began = time.perf_counter()
    loader = training_loader(job)
    made = time.perf_counter()
    batches = iter(loader)
    next(batches)
    return {"loader_s": made - began, "first_batch_s": time.perf_counter() - began}


def memory(job: dict) -> dict:
    loader = training_loader({**job, "batch_size": 100, "is_cached": True})
    sizes = []
    for _ in range(job["epochs"]):
        for _ in loader:
            pass
        sizes.append(anonymous_bytes())
    return {"anonymous": sizes, "growth": sizes[-1] / sizes[1] - 1, "median": statistics.median(sizes)}


def training_loader(job: dict):
    import brimful
    from brimful import transforms as T

    dataset = brimful.ShardDataset(
        job["pattern"],
        fields=("jpg", "cls"),
        transform=T.Compose(
            [
                T.RandomResizedCrop(224),
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        ),
        index_cache=job["cache"] if job["is_cached"] else None,
    )
    return brimful.DataLoader(dataset, job["batch_size"], shuffle=True, drop_last=True)


def anonymous_bytes() -> int:
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


if __name__ == "__main__":
    main()

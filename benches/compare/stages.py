"""Recipes whose transforms run partly in Python: brimful.DataLoader and torch's, with the same transforms and workers.

stages.py DATA: DATA comes from make_data.py. Every measurement is a process of its own, the loaders take turns, and the
first of a round changes from round to round. Two loaders of torch's are compared with: over the image folder, which
decodes with Pillow, and over the very ShardDataset that brimful.DataLoader reads, whose native part then runs inside
torch's worker processes. Prints medians with their range, and ratios taken round by round; --out keeps every number.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import machine
from machine import say
from summary import spread

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

BRIMFUL, TORCH_SHARDS, TORCH_FOLDER = "brimful", "torch, same data set", "torch, image folder"
LOADERS = (BRIMFUL, TORCH_SHARDS, TORCH_FOLDER)


def torchvision_recipe(augment):
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            augment(transforms),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
            transforms.RandomErasing(0.1),
        ]
    )


def timm_recipe():
    from timm.data import create_transform

    return create_transform(
        SIZE, is_training=True, auto_augment="rand-m9-mstd0.5", re_prob=0.25, re_mode="pixel", interpolation="bicubic"
    )


RECIPES = {
    "TrivialAugmentWide": lambda: torchvision_recipe(lambda t: t.TrivialAugmentWide()),
    "RandAugment": lambda: torchvision_recipe(lambda t: t.RandAugment()),
    "AutoAugment": lambda: torchvision_recipe(lambda t: t.AutoAugment()),
    "ColorJitter": lambda: torchvision_recipe(lambda t: t.ColorJitter(0.4, 0.4, 0.4)),
    "timm rand-m9-mstd0.5": timm_recipe,
}


def main() -> None:
    arguments = parse()
    if arguments.measure:
        measure(*arguments.measure, arguments)
    data = json.loads((arguments.data / "data.json").read_text())
    job = {"workers": arguments.workers, "batch_size": arguments.batch_size, "data": str(arguments.data)}
    results = machine.document(data=data, job=job, seconds=arguments.seconds, measured=[])
    if arguments.out and arguments.out.exists() and arguments.add:
        results = json.loads(arguments.out.read_text())
    for recipe in arguments.recipes:
        for number in range(arguments.rounds):
            shift = number % len(LOADERS)
            for loader in LOADERS[shift:] + LOADERS[:shift]:
                found = turn(loader, recipe, arguments)
                results["measured"].append({"round": number, "recipe": recipe, "loader": loader, **found})
                say(f"{recipe}, round {number + 1}, {loader}: {found['images_per_s']} images/s")
                results["summary"] = summarise(results["measured"])
                machine.save(results, arguments.out)
    print_summary(results["summary"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares loaders on transforms that run in Python.")
    parser.add_argument("data", type=Path, help="a folder that make_data.py made")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES), metavar="RECIPE")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (%(default)s)")
    parser.add_argument("--workers", type=int, default=machine.cores(), help="(%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--out", type=Path, help="write every number as JSON to this file")
    parser.add_argument("--add", action="store_true", help="add to what the file holds")
    parser.add_argument("--measure", nargs=2, metavar=("LOADER", "RECIPE"), help="one measurement, for the turns")
    return parser.parse_args()


def turn(loader: str, recipe: str, arguments: argparse.Namespace) -> dict:
    options = ["--seconds", str(arguments.seconds), "--workers", str(arguments.workers)]
    options += ["--batch-size", str(arguments.batch_size), "--measure", loader, recipe]
    command = [sys.executable, __file__, str(arguments.data), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    return json.loads(done.stdout)


def measure(name: str, recipe: str, arguments: argparse.Namespace) -> NoReturn:
    """Prints images a second of one loader once it is at work, and its processor time."""
    begin = time.perf_counter()
    loader = make(name, RECIPES[recipe](), arguments)
    batches = endless(loader)
    next(batches)
    first_batch_s = time.perf_counter() - begin
    # What is made ahead, and the measurements that a decision takes, are over after so many.
    for _ in range(4 * arguments.workers + 4):
        next(batches)
    others = machine.machine_cpu_s() - machine.tree_cpu_s()
    cpu_s, start = machine.tree_cpu_s(), time.perf_counter()
    images = count = 0
    while count % arguments.workers or time.perf_counter() - start < arguments.seconds:
        batch = next(batches)
        images, count = images + len(batch[0]), count + 1
    wall_s, cpu_s = time.perf_counter() - start, machine.tree_cpu_s() - cpu_s
    others = machine.machine_cpu_s() - machine.tree_cpu_s() - others
    if tuple(batch[0].shape[1:]) != (3, SIZE, SIZE):
        raise SystemExit(f"batches of {tuple(batch[0].shape)}")
    found = {
        "images_per_s": round(images / wall_s, 1),
        "cpu_s_per_1000": round(1000 * cpu_s / images, 2),
        "first_batch_s": round(first_batch_s, 2),
        "others_cores": round(max(others, 0.0) / wall_s, 2),
    }
    if name == BRIMFUL:
        found["python"] = loader.stats()["python"]
    # Workers that would go on for ever are not waited for.
    print(json.dumps(found), flush=True)
    os._exit(0)


def make(name: str, transform, arguments: argparse.Namespace):
    import torch

    import brimful

    options = {"batch_size": arguments.batch_size, "shuffle": True, "num_workers": arguments.workers}
    options |= {"drop_last": True, "persistent_workers": True}
    torch.manual_seed(0)
    if name == TORCH_FOLDER:
        from torchvision.datasets import ImageFolder

        return torch.utils.data.DataLoader(ImageFolder(str(arguments.data / "folder"), transform), **options)
    shards = sorted(str(path) for path in (arguments.data / "shards").glob("*.tar"))
    dataset = brimful.ShardDataset(shards, fields=("jpg", "cls"), transform=transform, index_cache=None)
    kind = torch.utils.data.DataLoader if name == TORCH_SHARDS else brimful.DataLoader
    return kind(dataset, **options)


def endless(loader):
    while True:
        yield from loader


def summarise(measured: list[dict]) -> dict:
    summary = {}
    for recipe in dict.fromkeys(row["recipe"] for row in measured):
        rows = [row for row in measured if row["recipe"] == recipe]
        rates = {
            loader: {row["round"]: row["images_per_s"] for row in rows if row["loader"] == loader} for loader in LOADERS
        }
        summary[recipe] = {
            loader: {
                "images_per_s": spread(list(rates[loader].values())),
                "cpu_s_per_1000": spread([row["cpu_s_per_1000"] for row in rows if row["loader"] == loader]),
                **ratio(rates[BRIMFUL], rates[loader]),
            }
            for loader in LOADERS
            if rates[loader]
        }
    return summary


def ratio(ours: dict, theirs: dict) -> dict:
    common = sorted(ours.keys() & theirs.keys())
    return {"brimful_over_it": spread([ours[number] / theirs[number] for number in common])} if common else {}


def print_summary(summary: dict) -> None:
    for recipe, rows in summary.items():
        print(f"\n{recipe}")
        for loader, row in rows.items():
            rate, cpu, over = row["images_per_s"], row["cpu_s_per_1000"], row.get("brimful_over_it")
            line = f"  {loader:<22}{rate['median']:>8.1f} ({rate['min']:.1f}-{rate['max']:.1f}) images/s"
            line += f"  {cpu['median']:>6.2f} CPU s per 1,000"
            line += f"  brimful / it {over['median']:.2f} ({over['min']:.2f}-{over['max']:.2f})" if over else ""
            print(line)


if __name__ == "__main__":
    main()

"""The batch size that AutoBatch finds, against an exhaustive sweep on the same GPU, for five models.

    python benches/compare/autobatch.py --out benches/runs/DATE-gpu-autobatch.json

Data is on the GPU already: the model alone is measured. For each model: a sweep over sizes an eighth of a doubling
apart, then a search as `DataLoader(batch_size=AutoBatch(...))` makes it. The row says how the chosen size compares with
the smallest of the sweep that reaches the target, what the search cost, and what the probe takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch

from brimful.autobatch import AutoBatch, Tuning
from brimful.command import machine, write_whole
from brimful.step_clock import Probe
from brimful.tune import scan
from brimful.tune.subject import ModelSubject, make_model, moved, resized

MODELS = ("torchvision:resnet50", "torchvision:resnet18", "torchvision:vit_b_16", "torchvision:convnext_tiny", "mlp")
OPTIONS = {"amp": "bf16", "channels_last": True}
RATIO = (0.75, 1.33)


def mlp() -> torch.nn.Module:
    """Layers that are launched more slowly than they run."""
    layers = [torch.nn.AdaptiveAvgPool2d(16), torch.nn.Flatten(), torch.nn.Linear(768, 1024)]
    for _ in range(8):
        layers += [torch.nn.ReLU(), torch.nn.Linear(1024, 1024)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(1024, 1000))


def main(argv: list[str] | None = None) -> int:
    """Runs the models; returns 1 if a size lies outside of what was promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--largest", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each size of the sweep")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--out")
    asked = parser.parse_args(argv)
    device = torch.device(asked.device)
    batch = [torch.randn(16, 3, asked.side, asked.side), torch.arange(16)]
    rows = []
    for model in asked.models:
        row = compare(model, device, batch, asked.largest, asked.seconds)
        rows.append(row)
        print(json.dumps({**row, "curve": len(row["curve"])}), file=sys.stderr, flush=True)
    document = {"version": 1, "machine": machine(), "device": name_of(device), "results": rows}
    text = json.dumps(document, indent=1)
    if asked.out:
        write_whole(asked.out, text + "\n")
    print(text)
    return 0 if all(RATIO[0] <= row["ratio"] <= RATIO[1] for row in rows) else 1


def compare(model: str, device: torch.device, batch: Any, largest: int, seconds: float) -> dict[str, Any]:
    """One model: sweep, search, and the cost of the probe."""
    make = mlp if model == "mlp" else make_model(model)
    options = {**OPTIONS, **({} if device.type == "cuda" else {"amp": "off"})}
    probe = Probe(device)
    subject = ModelSubject(make, device, **options)
    curve = []
    for size in sizes(largest):
        curve += scan.curve(subject, batch, probe, 1e9, smallest=size, largest=size, each_s=seconds)
        if curve[-1].get("out_of_memory"):
            break
    good = [row for row in curve if "per_s" in row]
    best = max(row["per_s"] for row in good)
    exhaustive = next(row["batch_size"] for row in good if row["per_s"] >= 0.95 * best)
    found = search(ModelSubject(make, device, **options), device, batch, largest)
    without = scan.curve(subject, batch, Probe("cpu"), 1e9, smallest=exhaustive, largest=exhaustive, each_s=seconds)[0][
        "per_s"
    ]
    with_probe = next(row["per_s"] for row in good if row["batch_size"] == exhaustive)
    return {
        "model": model,
        "exhaustive": exhaustive,
        **found,
        "ratio": found["batch_size"] / exhaustive,
        "probe": probe.told,
        "probe_overhead": 1 - with_probe / without,
        "curve": curve,
    }


def sizes(largest: int) -> list[int]:
    """Multiples of 8 from 16 to `largest`, about an eighth of a doubling apart."""
    found, size = [], 16.0
    while size <= largest:
        found.append(max(16, round(size / 8) * 8))
        size *= 2**0.125
    return list(dict.fromkeys(found))


def search(subject: ModelSubject, device: torch.device, batch: Any, largest: int) -> dict[str, Any]:
    """Runs the search of a training loop on data that is there already."""
    tuning = Tuning(AutoBatch(min=16, max=largest), str(device), None, lag=0)
    wanted = [tuning.batch_size]
    tuning.follow = lambda size: wanted.append(size)
    at_hand: dict[int, Any] = {}
    failures, begin = 0, time.perf_counter()
    while tuning.summary()["phase"] not in ("settled", "failed"):
        tuning.asks_for_batch()
        size = wanted[-1]
        if size not in at_hand:
            at_hand = {size: moved(resized(batch, size), device)}
        tuning.has_batch(size)
        try:
            subject.step(at_hand[size])
        except torch.OutOfMemoryError:
            failures += 1
            at_hand.clear()
            tuning.ran_out_of_memory(size)
            torch.cuda.empty_cache()
    told = tuning.summary()
    seconds = time.perf_counter() - begin
    found = {"batch_size": told["batch_size"], "limit": told["limit"], "steps": told["steps"], "seconds": seconds}
    return {**found, "out_of_memory": failures, "changes": told["changes"]}


def name_of(device: torch.device) -> str:
    """What the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


if __name__ == "__main__":
    sys.exit(main())

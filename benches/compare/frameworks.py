"""What frameworks cost a loader: images/s in the trainers of Lightning and Transformers, after accelerate's `prepare`,
and without any.

frameworks.py SHARDS: the same loader in four loops that take turns, each on threads of its own that idle meanwhile.
Batches that were made ahead are left out. Prints medians of the ratios, round by round, with their range; --out keeps
every number with the command and the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import accelerate
import lightning
import machine
import torch
import transformers

import brimful
from brimful import transforms as T

SIDES = ("alone", "accelerate", "lightning", "transformers")

# Batches that may have been made ahead, while others had their turn.
AHEAD = 8


def main() -> None:
    arguments = parse()
    results = machine.document(
        shards=arguments.shards,
        batch_size=arguments.batch_size,
        workers=arguments.workers,
        versions={module.__name__: module.__version__ for module in (accelerate, lightning, transformers)},
        measured=[],
    )
    kinds = (Plain, Prepared, LightningTrained, TransformersTrained)
    loops = {side: kind(arguments) for side, kind in zip(SIDES, kinds, strict=True)}
    for loop in loops.values():
        loop.images_per_s()
    for number in range(arguments.rounds):
        shift = number % len(SIDES)
        order = SIDES[shift:] + SIDES[:shift]
        rates = {side: loops[side].images_per_s() for side in order}
        engines = {side: loops[side].loader.explain().engine for side in SIDES}
        results["measured"].append({"round": number, "images_per_s": rates, "engines": engines})
        print(number, {side: round(rate) for side, rate in rates.items()}, flush=True)
    results["ratios"] = {side: ratio(results["measured"], side) for side in SIDES[1:]}
    for side, found in results["ratios"].items():
        print(f"{side:<13} {found['median']:.3f} ({found['lowest']:.3f}-{found['highest']:.3f}) of the loader alone")
    machine.save(results, arguments.out)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures what frameworks cost a loader.")
    parser.add_argument("shards", help="a pattern of shards with jpg and cls")
    parser.add_argument("--rounds", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--workers", type=int, default=machine.cores(), help="threads (%(default)s)")
    parser.add_argument("--out", type=Path, help="a file for every number, as JSON")
    return parser.parse_args()


def ratio(measured: list[dict], side: str) -> dict[str, float]:
    ratios = [one["images_per_s"][side] / one["images_per_s"]["alone"] for one in measured]
    return {"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}


class Plain:
    """A loop over the loader as it was made."""

    fields: Any = ("jpg", "cls")

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.batch_size = arguments.batch_size
        steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
        dataset = brimful.ShardDataset(arguments.shards, self.fields, T.Compose(steps))
        self.loader = brimful.DataLoader(
            dataset, self.batch_size, shuffle=True, num_workers=arguments.workers, drop_last=True
        )

    def images_per_s(self) -> float:
        started = time.perf_counter()
        for number, (images, _) in enumerate(self.loader):
            images[0, 0, 0, 0].item()
            if number + 1 == AHEAD:
                started = time.perf_counter()
        return (len(self.loader) - AHEAD) * self.batch_size / (time.perf_counter() - started)


class Prepared(Plain):
    """The same loop over what accelerate makes of it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self.loader = accelerate.Accelerator(cpu=True).prepare(self.loader)


class LightningTrained(Plain):
    """The same in Lightning's trainer, with a model that does nothing."""

    def images_per_s(self) -> float:
        module = Nothing()
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
            trainer.fit(module, self.loader)
        return (len(self.loader) - AHEAD) * self.batch_size / (module.ended - module.started)


class TransformersTrained(Plain):
    """The same in the trainer of Transformers, with a model that does nothing."""

    fields = {"pixel_values": "jpg", "labels": "cls"}

    def images_per_s(self) -> float:
        model = Empty()
        with tempfile.TemporaryDirectory() as out, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
            asked = transformers.TrainingArguments(
                out,
                num_train_epochs=1,
                per_device_train_batch_size=self.batch_size,
                use_cpu=True,
                max_grad_norm=0,
                **quiet,
            )
            trainer = Fed(model, asked, train_dataset=self.loader.dataset)
            trainer.given = self.loader
            trainer.train()
            ended = time.perf_counter()
            self.loader = trainer.prepared
        return (len(self.loader) - AHEAD) * self.batch_size / (ended - model.started)


class Fed(transformers.Trainer):
    given: Any = None
    prepared: Any = None

    def get_train_dataloader(self) -> Any:
        self.prepared = self.accelerator.prepare(self.given)
        return self.prepared


class Empty(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.batches, self.started = 0, 0.0

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        pixel_values[0, 0, 0, 0].item()
        self.batches += 1
        if self.batches == AHEAD:
            self.started = time.perf_counter()
        return {"loss": self.weight.sum()}


class Nothing(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.started = self.ended = 0.0

    def training_step(self, batch, index):
        batch[0][0, 0, 0, 0].item()
        if index + 1 == AHEAD:
            self.started = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        self.ended = time.perf_counter()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    main()

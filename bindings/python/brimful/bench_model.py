"""A model that trains on whatever batches come, and how often it had to wait for one.

It measures loaders, not models: nothing is learned, saved or checked here but that the loss is a number.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .bench_gpu import GpuUsage
from .command import cores
from .errors import InvalidOptionError

Batch = tuple[torch.Tensor, torch.Tensor]

# The training stream stood still for longer than this between two steps: it waited for data.
WAIT_S = 50e-6
# Steps that the program runs ahead of the GPU at most, as one that looks at its loss now and then.
_RUN_AHEAD = 4
_CLASSES = 1000
# Batches that a loop over resident data takes in turn.
_RESIDENT_BATCHES = 4
# What a loader counts of its GPU.
_DEVICE_COUNTS = (
    "copied_bytes",
    "tensors_lent",
    "tensors_early",
    "engine_images",
    "engine_refused",
    "engine_unwritten",
)


class Trainee:
    """A torchvision classifier under SGD with momentum, channels last, and on a GPU in bfloat16."""

    def __init__(self, model: str, device: str | torch.device = "cuda") -> None:
        self.name = model
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InvalidOptionError("torch sees no GPU", hint="--device cpu tries the bench without one")
        if self.device.index is not None and self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        torch.manual_seed(0)
        self._model = _classifier(model).to(self.device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.001, momentum=0.9)
        self._loss_of = torch.nn.CrossEntropyLoss()
        self._loss = torch.zeros(())

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Trains on one batch: images `[N, 3, H, W]`, whole numbers as labels."""
        images = images.to(memory_format=torch.channels_last)
        self._optimizer.zero_grad(set_to_none=True)
        # Processors without bfloat16 units would take minutes for a step.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            self._loss = self._loss_of(self._model(images), labels % _CLASSES)
        self._loss.backward()
        self._optimizer.step()

    def train(
        self,
        batches: Iterator[Batch],
        *,
        seconds: float,
        warm_steps: int = 10,
        cycle: int = 1,
        cpu_s: Callable[[], float] = time.process_time,
        stats: Callable[[], dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Trains for a while and tells how it went.

        Args:
            batches: tensors on the device, without end.
            seconds: how long is measured.
            warm_steps: steps before that.
            cycle: the number of steps that are measured is a multiple of this.
            cpu_s: processor time so far of all that takes part.
            stats: of a brimful loader: it counts tensors that were handed over early, and what the engines decoded.
        """
        usage = GpuUsage.of_torch(self.device) if self.device.type == "cuda" else None
        for _ in range(warm_steps):
            self.step(*next(batches))
        self._finish()
        stats_before = stats() if stats else None
        if usage is not None:
            usage.begin()
        cpu_before, begin = cpu_s(), time.perf_counter()
        images, handed_over, host_wait_s, under_way = 0, [], 0.0, deque()
        while True:
            before, asked = self._mark(), time.perf_counter()
            batch = next(batches)
            host_wait_s += time.perf_counter() - asked
            handed_over.append((before, self._mark()))
            images += len(batch[0])
            self.step(*batch)
            del batch
            self._stay_near(under_way)
            if time.perf_counter() - begin >= seconds and len(handed_over) % cycle == 0:
                break
        self._finish()
        wall_s = time.perf_counter() - begin
        cpu = cpu_s() - cpu_before
        result = {"images": images, "images_per_s": round(images / wall_s, 2), "seconds": round(wall_s, 3)}
        result |= _waits([_seconds(before, after) for before, after in handed_over], wall_s)
        result["host_wait_share"] = round(host_wait_s / wall_s, 4)
        result |= cpu_figures(cpu, images, wall_s)
        result |= usage.end() if usage is not None else {}
        if stats is not None:
            result |= loader_figures(stats_before, stats(), images)
        result["loss"] = loss = self._loss.item()
        if not math.isfinite(loss):
            raise ArithmeticError(f"the loss of {self.name} is {loss}: the batches are no images and labels")
        return result

    def _mark(self) -> Any:
        """A point on the training stream; on the CPU a point in time."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _stay_near(self, under_way: deque) -> None:
        if self.device.type == "cuda":
            # This kind of event lets the processor sleep while it waits.
            step = torch.cuda.Event(blocking=True)
            step.record()
            under_way.append(step)
            if len(under_way) > _RUN_AHEAD:
                under_way.popleft().synchronize()

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def resident(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Copies of the next few batches, over and over: data that no loader has to bring."""
    kept = [(images.clone(), labels.clone()) for images, labels in itertools.islice(batches, _RESIDENT_BATCHES)]
    return itertools.cycle(kept)


def cpu_figures(cpu_s: float, images: int, wall_s: float) -> dict[str, float]:
    """Processor time as rows carry it; the percentage is of all cores that this process may use."""
    return {
        "cpu_s_per_1000": round(cpu_s / images * 1000, 3),
        "cpu_percent": round(100 * cpu_s / (wall_s * cores()), 1),
    }


def loader_figures(before: dict[str, Any], after: dict[str, Any], images: int) -> dict[str, Any]:
    """What a brimful loader counted between two looks at its `stats()`, and the later one whole."""
    figures: dict[str, Any] = {"loader_stats": after}
    if not before.get("device") or not after.get("device"):
        return figures
    for name in _DEVICE_COUNTS:
        if name in after["device"]:
            figures[name] = after["device"][name] - before["device"].get(name, 0)
    if figures.get("tensors_lent"):
        figures["tensors_early_share"] = round(figures["tensors_early"] / figures["tensors_lent"], 4)
    if "engine_images" in figures:
        figures["engine_images_share"] = round(figures["engine_images"] / images, 4)
    return figures


def _classifier(model: str) -> torch.nn.Module:
    try:
        from torchvision import models
    except ImportError as error:
        raise InvalidOptionError(
            "models come from torchvision, which cannot be imported", hint="pip install torchvision"
        ) from error
    make = getattr(models, model, None)
    if not callable(make) or model not in models.list_models(module=models):
        raise InvalidOptionError(f"torchvision has no classifier {model!r}", hint="resnet18, resnet50, vit_b_16, ...")
    return make(weights=None)


def _seconds(before: Any, after: Any) -> float:
    return after - before if isinstance(before, float) else before.elapsed_time(after) / 1000


def _waits(waits_s: list[float], wall_s: float) -> dict[str, Any]:
    # The first step finds a stream without work, which waits for whatever comes, however soon it comes.
    steady = waits_s[1:] or waits_s
    waiting = [wait for wait in steady if wait > WAIT_S]
    return {
        "steps": len(waits_s),
        "steps_waiting": len(waiting),
        "steps_waiting_share": round(len(waiting) / len(steady), 4),
        "wait_share": round(sum(waiting) / wall_s, 4),
        "hand_over_us_median": round(1e6 * statistics.median(waits_s), 1),
        "hand_over_us_max": round(1e6 * max(waits_s), 1),
    }

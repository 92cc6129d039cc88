"""What is tested: a model with its optimiser, or a step function of the user's, on batches of any size."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import torch

from ..adaptive import part_of, rows_of
from ..errors import InvalidOptionError

PARTS = ("copy", "forward", "backward", "optimizer")
CLASSES = 1000


class Marks:
    """Points in the course of a step: events on a GPU's stream, else points in time."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._points: list[Any] = []

    def mark(self) -> None:
        """Notes that the work up to here is given out."""
        if not self._is_cuda:
            self._points.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._points.append(event)

    def seconds(self) -> list[float]:
        """What lies between the points; waits for the GPU."""
        if not self._is_cuda:
            return [after - before for before, after in zip(self._points, self._points[1:], strict=False)]
        self._points[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in zip(self._points, self._points[1:], strict=False)]


class ModelSubject:
    """A classifier under SGD with momentum.

    Args:
        make: makes the model.
        device: where it trains.
        amp: "off", "fp16" or "bf16".
        channels_last: memory order of images and weights.
        compile: whether `torch.compile` is applied; with `cudagraphs` in the mode that records CUDA graphs.
    """

    def __init__(
        self,
        make: Callable[[], torch.nn.Module],
        device: torch.device,
        *,
        amp: str = "off",
        channels_last: bool = False,
        compile: bool = False,
        cudagraphs: bool = False,
    ) -> None:
        self.device = device
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        torch.manual_seed(0)
        self.model = make().to(device).train()
        if channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.run = self.model
        if compile or cudagraphs:
            self.run = torch.compile(self.model, mode="reduce-overhead" if cudagraphs else "default")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self._dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(amp)
        self.scaler = torch.amp.GradScaler(device.type, enabled=amp == "fp16")
        self._loss_of = torch.nn.CrossEntropyLoss()
        self.skipped = self.steps = 0
        self.has_nonfinite = False

    def step(self, batch: Any, marks: Marks | None = None) -> None:
        """One training step; `batch` is images `[N, C, H, W]` and whole numbers, or images alone."""
        mark = marks.mark if marks is not None else _nothing
        mark()
        images, labels = _images_and_labels(batch)
        images = images.to(self.device, non_blocking=True, memory_format=self._format)
        labels = labels.to(self.device, non_blocking=True)
        mark()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self._dtype, enabled=self._dtype is not None):
            output = self.run(images)
            loss = self._loss_of(output.float(), labels % output.shape[-1])
        mark()
        self.scaler.scale(loss).backward()
        mark()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        mark()
        self.steps += 1
        self.last_loss = loss.detach()

    def parts(self, batch: Any) -> dict[str, float]:
        """Seconds of each part of a step."""
        marks = Marks(self.device)
        self.step(batch, marks)
        return dict(zip(PARTS, marks.seconds(), strict=True))

    def look_at_numbers(self) -> None:
        """Notes whether the loss is still a number, and whether the scaler has just shrunk."""
        self.has_nonfinite |= not bool(torch.isfinite(self.last_loss))


class FunctionSubject:
    """A step function of the user's: `step_fn(batch)` trains on one batch of the loader."""

    def __init__(self, step_fn: Callable[[Any], Any], device: torch.device) -> None:
        self.device = device
        self._step_fn = step_fn
        self.steps = 0

    def step(self, batch: Any) -> None:
        """One training step."""
        self._step_fn(batch)
        self.steps += 1


def make_model(name: str) -> Callable[[], torch.nn.Module]:
    """What makes the model of `torchvision:NAME`, `timm:NAME` or `module:function`.

    Raises:
        InvalidOptionError: naming what cannot be imported or is not there.
    """
    source, _, what = name.partition(":")
    if not source or not what:
        raise InvalidOptionError(
            f"model={name!r} names no model", hint="write torchvision:resnet50, timm:NAME or module:function"
        )
    try:
        if source == "torchvision":
            from torchvision import models

            if what not in models.list_models(module=models):
                raise InvalidOptionError(f"torchvision has no classifier {what!r}", hint="resnet18, resnet50, ...")
            return lambda: models.get_model(what, weights=None)
        module = importlib.import_module("timm" if source == "timm" else source)
    except ImportError as error:
        raise InvalidOptionError(f"{source} cannot be imported: {error}", hint="is it installed here?") from error
    if source == "timm":
        return lambda: module.create_model(what, pretrained=False)
    function = getattr(module, what, None)
    if not callable(function):
        raise InvalidOptionError(f"{source} has no function {what!r}", hint="it is called without arguments")
    return function


def resized(batch: Any, rows: int) -> Any:
    """A batch of so many rows, made of the rows of another, in memory of its own."""
    have = rows_of(batch)
    if have >= rows:
        return part_of(batch, 0, rows)
    if torch.is_tensor(batch):
        repeats = -(-rows // have)
        return batch.repeat(repeats, *([1] * (batch.dim() - 1)))[:rows].contiguous()
    if isinstance(batch, dict):
        return {name: resized(value, rows) for name, value in batch.items()}
    is_list_of_columns = isinstance(batch, (list, tuple)) and not isinstance(batch[0], (str, bytes))
    if is_list_of_columns:
        parts = [resized(value, rows) for value in batch]
        return tuple(parts) if isinstance(batch, tuple) else parts
    return (list(batch) * -(-rows // have))[:rows]


def moved(batch: Any, device: torch.device) -> Any:
    """The same batch with its tensors on a device."""
    if torch.is_tensor(batch):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [moved(value, device) for value in batch]
        return tuple(parts) if isinstance(batch, tuple) else parts
    return batch


def _images_and_labels(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    columns = list(batch.values()) if isinstance(batch, dict) else batch
    if torch.is_tensor(columns):
        columns = [columns]
    images = next((column for column in columns if torch.is_tensor(column) and column.dim() == 4), None)
    if images is None:
        raise InvalidOptionError(
            "the loader's batches hold no images of one size", hint="end the transform with RandomResizedCrop(224)"
        )
    labels = [column for column in columns if torch.is_tensor(column) and column.dim() == 1]
    if not labels or labels[0].is_floating_point():
        return images, torch.zeros(len(images), dtype=torch.int64)
    return images, labels[0].long()


def _nothing() -> None:
    pass

"""A callback of Lightning's for loaders whose batch size is found while training runs.

It scales the learning rate where the size changes and logs the size. A step that runs out of memory ends the run, as
Lightning has no place to repeat it: `headroom` keeps sizes from coming near. Lightning itself is imported when the
callback is made.
"""

from __future__ import annotations

import sys
from typing import Any

from .errors import InvalidOptionError


def _base() -> type:
    """Lightning's class of callbacks: of the package that is in use, else of the one that is installed."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return sys.modules[name].Callback
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError("the callback needs Lightning: pip install lightning") from error
    return Callback


def auto_batch_callback(loader: Any, *, scale_learning_rate: bool = True, log: bool = True) -> Any:
    """A callback for a trainer whose training loader is `loader`, made with `AutoBatch`.

    Args:
        loader: the `brimful.DataLoader` that the trainer is given.
        scale_learning_rate: multiply the learning rates of all optimisers, and those that their schedulers start from,
            with the scale of each change. What `AutoBatch(on_change=...)` does is done as well.
        log: log "batch_size" with every training batch.

    Raises:
        InvalidOptionError: for a loader without `AutoBatch`, and under `global_batch`, where optimiser steps are
            Lightning's to count: give `accumulate_grad_batches` and a fixed batch size there.
    """
    if getattr(loader, "_tuning", None) is None:
        raise InvalidOptionError("this loader has a fixed batch size", hint="give it batch_size=AutoBatch(...)")
    if loader._tuning.per_rank is not None:
        raise InvalidOptionError(
            "Lightning counts accumulation steps itself, and AutoBatch(global_batch=...) changes their number",
            hint="use a loop of your own there (examples/adaptive.py), or AutoBatch without global_batch",
        )

    class AutoBatchCallback(_base()):
        """Follows the batch size of one loader."""

        def __init__(self) -> None:
            super().__init__()
            self._seen = len(loader.tuning["changes"])

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            changes = loader.tuning["changes"]
            for change in changes[self._seen :]:
                if scale_learning_rate:
                    scale_rates(trainer.optimizers, _schedulers(trainer), change["lr_scale"])
            self._seen = len(changes)
            if log:
                module.log("batch_size", float(loader.batch_size), prog_bar=True)

    return AutoBatchCallback()


def scale_rates(optimizers: list[Any], schedulers: list[Any], scale: float) -> None:
    """Multiplies the learning rates of optimisers, and the rates that their schedulers start from."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] *= scale
            if "initial_lr" in group:
                group["initial_lr"] *= scale
    for scheduler in schedulers:
        if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [rate * scale for rate in scheduler.base_lrs]


def _schedulers(trainer: Any) -> list[Any]:
    return [getattr(config, "scheduler", config) for config in getattr(trainer, "lr_scheduler_configs", [])]

"""Finds the native part of a pipeline, or of a loader around one, and explains what runs where.

A loader whose data set is native from end to end needs no worker processes: threads of this process make its batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any

from .. import devices
from ..explanation import Explanation
from .delivery import Delivery
from .epochs import Epochs
from .pytorch import DataLoader
from .recognition import Recognition, recognise
from .regrouped import Regrouped
from .stages import stage_name


def head(pipeline: Any) -> tuple[Iterator[Any], int] | None:
    """What comes out of the native stages of a pipeline and how many they are; None if it has none."""
    delivery = _delivery(pipeline)
    return None if delivery is None else (iter(delivery), delivery.stages)


def explain(pipeline: Any) -> Explanation:
    """Which stages of a pipeline run natively, which in Python, and why."""
    if pipeline.strict:
        return Explanation(
            "python", python=_names(pipeline.pipeline), reasons=("compat='strict' asks for Python alone",)
        )
    if not pipeline.pipeline:
        return Explanation("python", reasons=("the pipeline is empty",))
    delivery, reason = _delivery(pipeline), _reason(pipeline)
    if delivery is None:
        return Explanation("python", python=_names(pipeline.pipeline), reasons=(reason,))
    native, python, notes = delivery.explain()
    reasons = (reason,) if reason else ()
    return Explanation("native", native, (*python, *_names(pipeline.pipeline[delivery.stages :])), reasons, notes)


class PipelineHead(Delivery):
    """The native stages at a pipeline's beginning."""

    @property
    def stages(self) -> int:
        return self.plan.stages


class LoaderHead:
    """A torch loader over a pipeline that is native from end to end: its batches, made by threads."""

    stages = 1

    def __init__(self, loader: Any, plan: Any) -> None:
        self.loader = loader
        self._delivery = Delivery(_batched_by(loader, plan), loader.num_workers)
        self._epochs: Epochs | None = None
        self._rows: Regrouped | None = None

    def serves(self, loader: Any, plan: Any) -> bool:
        """Whether this is the head for that loader and plan, in this process."""
        return loader is self.loader and self._delivery.serves(_batched_by(loader, plan), loader.num_workers)

    def __iter__(self) -> Iterator[Any]:
        pipeline, loader = self.loader.dataset, self.loader
        if not pipeline._epochs:
            return self._pinned(self._items())
        # Each worker process would give as many.
        workers = max(1, loader.num_workers)
        if loader.batch_size is not None:
            if self._rows is None:
                parts = self._delivery.parts
                self._rows = Regrouped(lambda: _endless(parts))
            return self._pinned(self._epoch_of_batches(pipeline.nsamples, workers))
        if self._epochs is None:
            self._epochs = Epochs(lambda: _endless(self._items))
        return self._pinned(self._epochs.next(pipeline.nsamples * workers if pipeline.nsamples > 0 else None))

    def explain(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        native, python, notes = self._delivery.explain()
        threads = self.loader.num_workers or "all cores as"
        batch = () if self.loader.batch_size is None else (f"batch({self.loader.batch_size})",)
        return (*native, *batch), python, (f"{threads} threads in place of worker processes", *notes)

    def _epoch_of_batches(self, samples: int, workers: int) -> Iterator[list[Any]]:
        """The batches that workers would give of `samples` each, whose last ones need not be full."""
        size = self.loader.batch_size
        sizes = [size] * (samples // size * workers) + [samples % size] * workers if samples > 0 else repeat(size)
        for rows in sizes:
            columns = self._rows.take(rows) if rows else None
            if columns is None:
                return
            if rows == size or not self.loader.drop_last:
                yield [self._collate(column) if isinstance(column, list) else column for column in columns]

    def _items(self) -> Iterator[Any]:
        if self.loader.batch_size is None:
            return (self.loader.collate_fn(item) for item in self._delivery)
        return self._delivery.batches(self._collate)

    def _pinned(self, items: Iterator[Any]) -> Iterator[Any]:
        return map(_pinned, items) if self.loader.pin_memory and devices.can_pin() else items

    def _collate(self, values: list[Any]) -> Any:
        # torch collates the rows of a column as a tuple, and gives texts back as they come.
        return self.loader.collate_fn(tuple(values))


def _batched_by(loader: Any, plan: Any) -> Any:
    """The plan of a data set with the batches of the loader around it."""
    if loader.batch_size is None:
        return plan
    # An epoch of its own length goes through the end of a pass.
    return replace(plan, batch=loader.batch_size, partial=not loader.drop_last or loader.dataset._epochs)


def _endless(begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Pass after pass, until one gives nothing."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for item in begin():
            is_empty = False
            yield item


def _delivery(pipeline: Any) -> Any:
    if pipeline.strict or not pipeline.pipeline:
        return None
    first, kept = pipeline.pipeline[0], pipeline._delivery
    if isinstance(first, DataLoader):
        plan = _recognise_loader(first).plan
        if plan is None:
            return None
        if not (isinstance(kept, LoaderHead) and kept.serves(first, plan)):
            pipeline._delivery = LoaderHead(first, plan)
        return pipeline._delivery
    plan = recognise(pipeline.pipeline).plan
    if plan is None:
        return None
    if not (isinstance(kept, PipelineHead) and kept.serves(plan, 0)):
        pipeline._delivery = PipelineHead(plan)
    return pipeline._delivery


def _reason(pipeline: Any) -> str:
    first = pipeline.pipeline[0]
    return (_recognise_loader(first) if isinstance(first, DataLoader) else recognise(pipeline.pipeline)).reason


def _recognise_loader(loader: Any) -> Recognition:
    """The plan of the whole data set of a loader, if threads can do all that the loader was asked for."""
    from torch.utils.data import default_collate, default_convert

    from .pipeline import DataPipeline

    dataset = loader.dataset
    if not isinstance(dataset, DataPipeline) or dataset.strict:
        return Recognition(reason=f"the data set of the loader, {type(dataset).__name__}, has no native form")
    given = [
        name
        for name, is_given in {
            "collate_fn": loader.collate_fn not in (default_collate, default_convert),
            "worker_init_fn": loader.worker_init_fn is not None,
            "timeout": loader.timeout != 0,
            "a subclass of DataLoader": type(loader) is not DataLoader,
            "repeat": dataset.repetitions != 1 and not dataset._epochs,
        }.items()
        if is_given
    ]
    if given:
        return Recognition(reason=f"the loader's worker processes are needed for {', '.join(given)}")
    found = recognise(dataset.pipeline)
    if found.plan is None:
        return found
    if found.plan.stages < len(dataset.pipeline):
        names = ", ".join(_names(dataset.pipeline[found.plan.stages :]))
        return Recognition(
            reason=f"worker processes run {names} in Python, and the stages before natively: {found.reason}"
        )
    if loader.batch_size is not None and (found.plan.batch is not None or found.plan.goes_on):
        return Recognition(reason="the loader makes batches of batches, or of what is left of bad samples")
    return Recognition(found.plan)


def _names(stages: list[Any]) -> tuple[str, ...]:
    return tuple(stage_name(stage) for stage in stages)


def _pinned(item: Any) -> Any:
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(item)

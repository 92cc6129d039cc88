"""What is done with rows in Python: steps of the transform, the target's transform, and the making of the batch.

It is the same in a thread and in a worker process, to which it is sent; it starts neither.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy

from . import draws as sources
from .collate import Allocate, as_delivered, numpy_collate, torch_collate
from .draws import Source, Undrawn
from .failure import name_of, noted


@dataclass
class Rows:
    """Samples as the native side made them.

    Attributes:
        columns: one a field: an array whose first dimension is the rows, or a list of one value a row.
        keys: the samples' keys.
        draws: for each sample the number that its randomness derives from.
    """

    columns: list[Any]
    keys: list[str]
    draws: list[int]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Recipe:
    """The Python part of a loader.

    Attributes:
        steps: the transform from its first step without a native form on.
        takes_picture: whether these get PIL images; otherwise tensors.
        is_image: for each field, whether it is an image.
        names: what fields are called in a sample that is a dictionary; "" where it is its one field, None for tuples.
        target_transform: called with the value of the last field.
        collate_fn: makes the batch of a list of samples; None for torch's rules, or NumPy's.
        arrays: "torch" or "numpy": what tensors are.
    """

    steps: tuple[Callable, ...]
    takes_picture: bool
    is_image: tuple[bool, ...]
    names: tuple[str, ...] | str | None
    target_transform: Callable | None
    collate_fn: Callable | None
    arrays: str

    @property
    def functions(self) -> list[Callable]:
        """Everything of it that a user may have written."""
        return [*self.steps, *(f for f in (self.target_transform, self.collate_fn) if f is not None)]

    @property
    def source(self) -> Source:
        """What its functions draw from."""
        return sources.greatest(self.functions)

    def make(self, rows: Rows, draws: Undrawn, allocate: Allocate | None, after: Callable[[], None]) -> Any:
        """The batch of `rows`; `after` is called after each sample.

        Raises:
            GlobalDraw: if `draws` does not allow what a function draws from.
        """
        with draws.batch():
            samples = []
            for number, (key, draw) in enumerate(zip(rows.keys, rows.draws, strict=True)):
                values = [column[number] for column in rows.columns]
                if draws.keeps_rows:
                    values = [self._copied(field, value) for field, value in enumerate(values)]
                with draws.sample(draw):
                    samples.append(self._sample(values, key, draws))
                after()
            if self.collate_fn is None:
                return self._collated(self._columns, samples, rows, allocate)
            with draws.sample(sources.of_batch(rows.draws)), draws.step(sources.source_of(self.collate_fn)):
                return self._collated(self.collate_fn, samples)

    def _sample(self, values: list[Any], key: str, draws: Undrawn) -> Any:
        for field, is_image in enumerate(self.is_image):
            if is_image and self.steps:
                values[field] = self._image(values[field], key, draws)
        if self.target_transform is not None:
            values[-1] = _call(self.target_transform, values[-1], key, draws.step(Source.UNKNOWN))
        if self.names is None:
            return tuple(values)
        return values[0] if self.names == "" else dict(zip(self.names, values, strict=True))

    def _copied(self, field: int, value: Any) -> Any:
        """A copy of a row that steps may write to; pictures are copies anyway."""
        if self.is_image[field] and self.steps and self.takes_picture:
            return value
        copy = getattr(value, "clone", None) or getattr(value, "copy", None)
        return copy() if copy is not None and hasattr(value, "shape") else value

    def _image(self, value: Any, key: str, draws: Undrawn) -> Any:
        if self.takes_picture:
            value = picture(value)
        for step, source in zip(self.steps, self._sources, strict=True):
            value = _call(step, value, key, draws.step(source))
        return value

    @cached_property
    def _sources(self) -> list[Source]:
        return [sources.source_of(step) for step in self.steps]

    def _columns(self, samples: list[Any], rows: Rows, allocate: Allocate | None) -> Any:
        """A batch by column, as native ones are: texts, bytes and JSON values stay lists."""
        collate = torch_collate if self.arrays == "torch" else numpy_collate
        if self.names == "":
            columns = [samples]
        else:
            fields = range(len(self.is_image)) if self.names is None else self.names
            columns = [[sample[field] for sample in samples] for field in fields]
        for field, column in enumerate(columns):
            if self._is_changed(field):
                columns[field] = collate(column, allocate)
            else:
                columns[field] = as_delivered(column, collate, allocate)
        if self.names is None:
            return columns if self.arrays == "torch" else tuple(columns)
        return columns[0] if self.names == "" else dict(zip(self.names, columns, strict=True))

    def _is_changed(self, field: int) -> bool:
        """Whether a function of the user's made a field's values."""
        is_target = self.target_transform is not None and field == len(self.is_image) - 1
        return is_target or (self.is_image[field] and bool(self.steps))

    @staticmethod
    def _collated(collate: Callable, samples: list[Any], *rest: Any) -> Any:
        try:
            return collate(samples, *rest)
        except Exception as error:
            raise noted(error, f"in {name_of(collate)}, of {len(samples)} samples") from error.__cause__


def _call(step: Callable, value: Any, key: str, drawing: AbstractContextManager) -> Any:
    try:
        with drawing:
            return step(value)
    except Exception as error:
        raise noted(error, f"in {name_of(step)}, of sample {key}") from error.__cause__


def picture(image: Any) -> Any:
    """A PIL image of `[H, W, C]` bytes."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "a transform that runs in Python gets PIL images, and Pillow cannot be imported; `pip install pillow`"
        ) from error
    array = image if isinstance(image, numpy.ndarray) else image.numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def rows_of(batch: Any, to_array: Callable[[Any], Any]) -> Rows:
    """The rows of a native batch; nothing is copied."""
    columns = [
        [to_array(row) for row in column] if isinstance(column, list) else to_array(column) for column in batch.columns
    ]
    return Rows(columns, batch.keys, batch.draws)

"""Samples into a batch by torch's rules, with the memory of large tensors given by the caller; and the same for NumPy.

Torch's own rules are torch's own code: only where its stacked tensors lie is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

# A buffer of so many bytes, or None where there is none to be had.
Allocate = Callable[[int], Any]

# Smaller tensors are not worth a place of their own.
_STACKED_BYTES_MIN = 64 << 10


def torch_collate(samples: Sequence[Any], allocate: Allocate | None) -> Any:
    """As `torch.utils.data.default_collate`, stacking large tensors into memory from `allocate`."""
    import torch
    from torch.utils.data._utils.collate import collate, default_collate_fn_map

    if allocate is None:
        return collate(samples, collate_fn_map=default_collate_fn_map)

    def stack(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        first = batch[0]
        plain = default_collate_fn_map[torch.Tensor]
        nbytes = first.numel() * first.element_size() * len(batch)
        is_plain = type(first) is torch.Tensor and first.layout == torch.strided and first.device.type == "cpu"
        if not is_plain or nbytes < _STACKED_BYTES_MIN or any(row.dtype != first.dtype for row in batch):
            return plain(batch, collate_fn_map=collate_fn_map)
        if any(row.shape != first.shape or row.requires_grad for row in batch):
            return plain(batch, collate_fn_map=collate_fn_map)
        buffer = allocate(nbytes)
        if buffer is None:
            return plain(batch, collate_fn_map=collate_fn_map)
        count = first.numel() * len(batch)
        out = torch.frombuffer(buffer, dtype=first.dtype, count=count).view(len(batch), *first.shape)
        return torch.stack(list(batch), 0, out=out)

    return collate(samples, collate_fn_map={**default_collate_fn_map, torch.Tensor: stack})


def numpy_collate(samples: Sequence[Any], allocate: Allocate | None) -> Any:
    """Columns of samples: arrays of one shape and numbers as NumPy arrays, everything else as lists."""
    first = samples[0]
    if isinstance(first, tuple):
        return tuple(numpy_collate(column, allocate) for column in zip(*samples, strict=True))
    if isinstance(first, dict):
        return {name: numpy_collate([sample[name] for sample in samples], allocate) for name in first}
    rows = [row.numpy() if hasattr(row, "detach") else row for row in samples]
    first = rows[0]
    if isinstance(first, numpy.ndarray):
        shapes = {(row.shape, row.dtype) for row in rows if isinstance(row, numpy.ndarray)}
        if len(shapes) != 1 or not all(isinstance(row, numpy.ndarray) for row in rows):
            return rows
        nbytes = first.nbytes * len(rows)
        buffer = allocate(nbytes) if allocate is not None and nbytes >= _STACKED_BYTES_MIN else None
        if buffer is None:
            return numpy.stack(rows)
        out = numpy.frombuffer(buffer, dtype=first.dtype, count=first.size * len(rows))
        return numpy.stack(rows, out=out.reshape(len(rows), *first.shape))
    is_number = all(isinstance(row, (bool, int, float, numpy.number)) for row in rows)
    return numpy.asarray(rows) if is_number else list(rows)


def as_delivered(
    column: list[Any], collate: Callable[[list[Any], Allocate | None], Any], allocate: Allocate | None
) -> Any:
    """A field that nobody changed as native batches have it: numbers and arrays collated, everything else a list."""
    if not all(_is_number(value) or hasattr(value, "shape") for value in column):
        return column
    if any(type(value) is float for value in column):
        # torch goes by the first of them.
        column = [float(value) if _is_number(value) else value for value in column]
    return collate(column, allocate)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

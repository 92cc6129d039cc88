"""Stages that make batches of samples and take them apart again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy

from .pytorch import TorchTensor
from .stages import pipelinefilter


def combine_values(b: Sequence[Any], combine_tensors: bool = True, combine_scalars: bool = True) -> Any:
    """One column of a batch: numbers as an array, tensors and arrays stacked, all else as a list."""
    first = b[0]
    if isinstance(first, (int, float)):
        return numpy.array(list(b)) if combine_scalars else b
    if not isinstance(first, (TorchTensor, numpy.ndarray)):
        return list(b)
    if not combine_tensors:
        return b
    shapes = {tuple(value.shape) for value in b}
    assert len(shapes) == 1, (
        f"values of unequal shape cannot share a batch: {sorted(shapes)}; crop or resize them before"
    )
    if isinstance(first, numpy.ndarray):
        return numpy.stack(list(b))
    import torch

    return torch.stack(list(b))


def default_collation_fn(
    samples: Sequence[Any], combine_tensors: bool = True, combine_scalars: bool = True
) -> tuple | dict:
    """A batch of samples: a dict or tuple like each of them, of columns."""
    keys = _places(samples[0])
    for sample in samples[1:]:
        assert set(_places(sample)) == set(keys), (
            f"samples of a batch have other fields: {list(keys)}, {_places(sample)}"
        )
    columns = {key: combine_values([row[key] for row in samples], combine_tensors, combine_scalars) for key in keys}
    return columns if isinstance(samples[0], dict) else tuple(columns[key] for key in keys)


def _places(sample: Any) -> list[Any]:
    return list(sample) if isinstance(sample, dict) else list(range(len(sample)))


def _batched(
    data: Iterable[Any],
    batchsize: int = 20,
    collation_fn: Callable[[list], Any] | None = default_collation_fn,
    partial: bool = True,
) -> Iterator[Any]:
    """Batches of `batchsize` samples, the last one shorter if `partial`; without a collation, lists of samples."""
    if batchsize < 1:
        raise ValueError(f"batchsize={batchsize}: a batch has at least one sample")
    batch: list[Any] = []
    for sample in data:
        batch.append(sample)
        if len(batch) == batchsize:
            yield batch if collation_fn is None else collation_fn(batch)
            batch = []
    if batch and partial:
        yield batch if collation_fn is None else collation_fn(batch)


def _unlisted(data: Iterable[list]) -> Iterator[Any]:
    """The samples of lists of samples."""
    for batch in data:
        assert isinstance(batch, list), (
            f"unlisted takes lists of samples, not {type(batch).__name__}; unbatched is meant"
        )
        yield from batch


def _unbatched(data: Iterable[Any]) -> Iterator[Any]:
    """The samples of collated batches."""
    for batch in data:
        if isinstance(batch, (list, tuple)):
            for row in range(len(batch[0])):
                yield tuple(column[row] for column in batch)
        elif isinstance(batch, dict):
            lengths = {len(column) for column in batch.values()}
            assert len(lengths) == 1, f"columns of a batch are of unequal length: {sorted(lengths)}"
            for row in range(lengths.pop()):
                yield {name: column[row] for name, column in batch.items()}
        else:
            raise ValueError(f"a batch is a tuple, list or dict of columns, not {type(batch).__name__}")


batched = pipelinefilter(_batched)
unbatched = pipelinefilter(_unbatched)
unlisted = pipelinefilter(_unlisted)

"""Columns of native batches as NumPy arrays, torch tensors or DLPack objects, without a copy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy

from ._native import DeviceTensor, Tensor
from .errors import InvalidOptionError

Columns = list[Any]


def numpy_column(column: Any) -> Any:
    """A NumPy view of a tensor; lists stay lists."""
    return numpy.from_dlpack(column) if isinstance(column, Tensor) else column


def torch_column(column: Any) -> Any:
    """A torch view of a tensor; lists stay lists."""
    import torch

    return torch.from_dlpack(column) if isinstance(column, (Tensor, DeviceTensor)) else column


def dlpack_column(column: Any) -> Any:
    """The exporter itself, for `from_dlpack` of any framework."""
    return column


CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "numpy": numpy_column,
    "torch": torch_column,
    "dlpack": dlpack_column,
}


def converter(arrays: str) -> Callable[[Any], Any]:
    """The conversion of columns that `arrays` names."""
    try:
        return CONVERTERS[arrays]
    except KeyError:
        known = ", ".join(f'"{name}"' for name in CONVERTERS)
        raise InvalidOptionError(f'arrays="{arrays}" is not known', hint=f"arrays is one of {known}") from None


def torch_is_there() -> bool:
    """Whether torch can be imported; looks it up, imports nothing."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    import importlib.util

    return importlib.util.find_spec("torch") is not None

"""Rows on their way to a worker process, batches on their way back: arrays in shared memory, the rest pickled.

Whatever can be pickled can be part of a sample or a batch; large arrays in it are written into a segment once.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy

from .recipe import Rows
from .segment import Outbox, Shared, aligned

# Smaller arrays travel in the message.
_SHARED_BYTES_MIN = 4 << 10

_NUMPY_KINDS = "biufc"


class Place:
    """Where an array lies: pickles as a few numbers."""

    __slots__ = ("is_torch", "dtype", "shape", "offset", "segment")

    def __init__(self, is_torch: bool, dtype: str, shape: tuple[int, ...], offset: int, segment: int) -> None:
        self.is_torch, self.dtype, self.shape, self.offset, self.segment = is_torch, dtype, shape, offset, segment

    def __reduce__(self):
        return Place, (self.is_torch, self.dtype, self.shape, self.offset, self.segment)

    def open(self, buffer: Any) -> Any:
        """The array over `buffer`, without a copy."""
        count = 1
        for length in self.shape:
            count *= length
        if self.is_torch:
            import torch

            dtype = getattr(torch, self.dtype)
            if count == 0:
                return torch.empty(self.shape, dtype=dtype)
            return torch.frombuffer(buffer, dtype=dtype, count=count, offset=self.offset).view(self.shape)
        if count == 0:
            return numpy.empty(self.shape, dtype=self.dtype)
        array = numpy.frombuffer(buffer, dtype=numpy.dtype(self.dtype), count=count, offset=self.offset)
        return array.reshape(self.shape)


def as_bytes(array: Any) -> tuple[Place, numpy.ndarray]:
    """The form of an array and its bytes, contiguous."""
    if isinstance(array, numpy.ndarray):
        array = numpy.ascontiguousarray(array)
        return Place(False, array.dtype.str, array.shape, 0, 0), array.reshape(-1).view(numpy.uint8)
    import torch

    array = array.detach().contiguous()
    name = str(array.dtype).rsplit(".", 1)[-1]
    return Place(True, name, tuple(array.shape), 0, 0), array.reshape(-1).view(torch.uint8).numpy()


class Bundle:
    """Rows in a segment: what is sent beside it."""

    def __init__(self, columns: list[Any], keys: list[str], draws: list[int], nbytes: int) -> None:
        self.columns, self.keys, self.draws, self.nbytes = columns, keys, draws, nbytes


def bundle(rows: Rows, room: Callable[[int], Any]) -> Bundle:
    """Writes the arrays of `rows` into memory from `room`."""
    forms: list[Any] = []
    parts: list[tuple[numpy.ndarray, int]] = []
    filled = 0
    for column in rows.columns:
        arrays = [column] if hasattr(column, "shape") else column
        if not arrays or not hasattr(arrays[0], "shape"):
            forms.append(column)
            continue
        places = []
        for array in arrays:
            place, data = as_bytes(array)
            place.offset = filled
            parts.append((data, filled))
            filled += aligned(data.nbytes)
            places.append(place)
        forms.append(places[0] if hasattr(column, "shape") else places)
    if parts:
        memory = numpy.frombuffer(room(filled), dtype=numpy.uint8)
        for data, offset in parts:
            # Lets other threads run meanwhile.
            numpy.copyto(memory[offset : offset + data.nbytes], data)
    return Bundle(forms, rows.keys, rows.draws, filled)


def unbundle(sent: Bundle, memory: Any) -> Rows:
    """The rows, as views of `memory`: they hold until the next ones come."""
    columns = []
    for form in sent.columns:
        if isinstance(form, Place):
            columns.append(form.open(memory))
        elif form and isinstance(form[0], Place):
            columns.append([place.open(memory) for place in form])
        else:
            columns.append(form)
    return Rows(columns, sent.keys, sent.draws)


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, outbox: Outbox) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._outbox = outbox
        self._places: dict[int, tuple[Any, Place]] = {}

    def persistent_id(self, value: Any) -> Place | None:
        kind = type(value)
        if kind is not numpy.ndarray and not _is_plain_tensor(kind, value):
            return None
        if kind is numpy.ndarray and value.dtype.kind not in _NUMPY_KINDS:
            return None
        if value.nbytes < _SHARED_BYTES_MIN:
            return None
        known = self._places.get(id(value))
        if known is None:
            # The value is kept, so that no other one gets its number.
            known = self._places[id(value)] = (value, self._put(value))
        return known[1]

    def _put(self, value: Any) -> Place:
        place, data = as_bytes(value)
        found = self._outbox.find(data.ctypes.data, data.nbytes)
        if found is None:
            found = self._outbox.place(data.nbytes)
            segment, offset = found
            numpy.copyto(numpy.frombuffer(segment.memory, numpy.uint8, data.nbytes, offset), data)
        place.segment, place.offset = found[0].number, found[1]
        return place


def _is_plain_tensor(kind: type, value: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or kind is not torch.Tensor:
        return False
    is_dense = value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized
    return is_dense and not value.requires_grad and not value.is_neg() and not value.is_conj()


def write(batch: Any, outbox: Outbox) -> tuple[bytes, list[Shared]]:
    """A batch as a message and the segments that it refers to."""
    file = io.BytesIO()
    _Writer(file, outbox).dump(batch)
    return file.getvalue(), outbox.done()


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, buffers: dict[int, Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._buffers = buffers

    def persistent_load(self, place: Place) -> Any:
        return place.open(self._buffers[place.segment])


def read(data: bytes, buffers: dict[int, Any]) -> Any:
    """The batch of a message, over leases of its segments."""
    return _Reader(data, buffers).load()

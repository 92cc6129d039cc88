"""Batches of torch's own machinery, moved to a GPU while the batch before them is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch


class Moved(Iterator[Any]):
    """The same over an iterator that has a length."""

    def __init__(self, batches: Iterator[Any], device: str) -> None:
        self._batches = batches
        self._moved = on_device(batches, device)

    def __next__(self) -> Any:
        return next(self._moved)

    def __len__(self) -> int:
        return len(self._batches)


def on_device(batches: Iterable[Any], device: str) -> Iterator[Any]:
    """Each batch on `device`, copied one ahead on a stream of its own; the program never waits for a copy.

    Tensors are looked for in lists, tuples, named tuples and mappings, and whatever has a `to` method is moved by it;
    everything else stays as it is.
    """
    stream = torch.cuda.Stream(device)
    ahead = None
    for batch in batches:
        # Memory that the consumer let go of may be given out here again while it is still being read.
        stream.wait_stream(torch.cuda.current_stream(torch.device(device)))
        with torch.cuda.stream(stream):
            moved = _each(batch, lambda item: _pinned(item).to(device, non_blocking=True))
        if ahead is not None:
            yield _handed_over(ahead, stream, device)
        ahead = moved
    if ahead is not None:
        yield _handed_over(ahead, stream, device)


def _pinned(item: Any) -> Any:
    # A copy from pageable memory waits for itself; page-locking first keeps the program going.
    is_pageable = torch.is_tensor(item) and item.device.type == "cpu" and not item.is_pinned()
    return item.pin_memory() if is_pageable else item


def _handed_over(batch: Any, stream: torch.cuda.Stream, device: str) -> Any:
    current = torch.cuda.current_stream(torch.device(device))
    current.wait_stream(stream)

    def used_by_current(tensor: Any) -> Any:
        if torch.is_tensor(tensor) and tensor.device.type == "cuda":
            tensor.record_stream(current)
        return tensor

    return _each(batch, used_by_current)


def _each(item: Any, change: Callable[[Any], Any]) -> Any:
    if torch.is_tensor(item) or hasattr(item, "to"):
        return change(item)
    if isinstance(item, Mapping):
        return {key: _each(value, change) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_each(value, change) for value in item))
    if isinstance(item, (list, tuple)):
        return type(item)(_each(value, change) for value in item)
    return item

"""Batches of torch's own machinery, moved to a GPU while the batch before them is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .engine import place_of

# What is ahead where the batches have ended: a collate_fn may make None of a batch.
_END = object()


class Moved(Iterator[Any]):
    """Each batch on `device`, one of them copied ahead of the one that is given.

    Tensors are looked for in lists, tuples, named tuples and mappings, and whatever has a `to` method is moved by it;
    everything else stays as it is. An error comes behind the batches before it.

    Args:
        batches: what is moved.
        device: where to.
        source: knows how far batches were made (`reached`), and is told where the consumer stands (`behind`).

    Attributes:
        place: where the consumer stands, or None where nothing was taken ahead of it.
    """

    def __init__(self, batches: Iterator[Any], device: str, source: Any) -> None:
        self.place: Any = None
        self._batches = batches
        self._copies = Copies(device)
        self._source = source
        self._ahead: Any = None
        self._ahead_place: Any = None
        self._failure: Exception | None = None
        # Whether there is something ahead: a batch, or the error in its place.
        self._has_ahead = False

    def __next__(self) -> Any:
        if not self._has_ahead:
            self._take_ahead()
        self._has_ahead = False
        self._stand_at(None)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        batch, place = self._ahead, self._ahead_place
        self._ahead = None
        if batch is _END:
            raise StopIteration
        self._take_ahead()
        self._stand_at(place)
        return self._copies.ready(batch)

    def __len__(self) -> int:
        return len(self._batches)

    def _take_ahead(self) -> None:
        self._has_ahead = True
        try:
            batch = next(self._batches, _END)
            self._ahead = batch if batch is _END else self._copies.begun(batch)
        except Exception as error:
            # The batch before it was good, and is given first.
            self._failure = error
        self._ahead_place = place_of(self._batches, self._source)

    def _stand_at(self, place: Any) -> None:
        self._source.behind = self.place = place


class Copies:
    """Copies to a GPU on a stream of their own; the program never waits for one."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def begun(self, batch: Any) -> Any:
        """The batch on the device, on which work has to wait for `ready`."""
        # Memory that the consumer let go of may be given out here again while it is still being read.
        self._stream.wait_stream(torch.cuda.current_stream(torch.device(self._device)))
        with torch.cuda.stream(self._stream):
            return _each(batch, lambda item: _pinned(item).to(self._device, non_blocking=True))

    def ready(self, batch: Any) -> Any:
        """The same batch, which the current stream may use from now on."""
        current = torch.cuda.current_stream(torch.device(self._device))
        current.wait_stream(self._stream)

        def used_by_current(tensor: Any) -> Any:
            if torch.is_tensor(tensor) and tensor.device.type == "cuda":
                tensor.record_stream(current)
            return tensor

        return _each(batch, used_by_current)


def _pinned(item: Any) -> Any:
    # A copy from pageable memory waits for itself; page-locking first keeps the program going.
    is_pageable = torch.is_tensor(item) and item.device.type == "cpu" and not item.is_pinned()
    return item.pin_memory() if is_pageable else item


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

"""Batches of other sizes than those they come in, made of columns without a look at single rows.

Where the batches come from, and what sizes are wanted, is the caller's matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any


class Regrouped:
    """A stream of batches as one of rows, from which any number is taken at a time.

    Args:
        begin: begins the stream; each batch is a list of columns: arrays, tensors, or lists of values.
    """

    def __init__(self, begin: Callable[[], Iterator[list[Any]]]) -> None:
        self._begin = begin
        self._stream: Iterator[list[Any]] | None = None
        self._left: deque[list[Any]] = deque()
        self._rows = 0

    def take(self, rows: int) -> list[Any] | None:
        """The columns of the next `rows` rows, or of fewer at the end of the stream; None if there are none.

        After an end or a failure the stream begins anew.
        """
        while self._rows < rows and self._pull():
            pass
        parts, missing = [], rows
        while missing and self._left:
            columns = self._left.popleft()
            size = len(columns[0])
            if size > missing:
                self._left.appendleft([column[missing:] for column in columns])
                columns, size = [column[:missing] for column in columns], missing
            parts.append(columns)
            missing -= size
        self._rows -= rows - missing
        return [_joined(column) for column in zip(*parts)] if parts else None

    def _pull(self) -> bool:
        """Takes another batch of the stream; False at its end."""
        if self._stream is None:
            self._stream = self._begin()
        try:
            columns = next(self._stream)
        except StopIteration:
            self._stream = None
            return False
        except BaseException:
            self._stream, self._rows = None, 0
            self._left.clear()
            raise
        self._left.append(columns)
        self._rows += len(columns[0])
        return True


def _joined(parts: tuple[Any, ...]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return [value for part in parts for value in part]
    import numpy
    import torch

    return torch.cat(parts) if torch.is_tensor(parts[0]) else numpy.concatenate(parts)

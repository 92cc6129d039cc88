"""An endless stream of items, given in epochs that each go on where the last one ended.

How long an epoch is its callers say; what is in the stream is the business of whoever begins it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any


class Epochs:
    """Epochs of one stream, which belongs to one process: in another one it begins anew.

    It begins anew as well after it has ended or failed, since a generator that raised gives nothing ever after.

    Args:
        begin: begins the stream.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._stream: Iterator[Any] | None = None
        self._begun_in = 0

    def next(self, count: int | None = None) -> Iterator[Any]:
        """The next `count` items, or all that are left."""
        return islice(self._items(), count)

    def _items(self) -> Iterator[Any]:
        if self._stream is None or self._begun_in != os.getpid():
            self._stream, self._begun_in = self._begin(), os.getpid()
        stream = self._stream
        while True:
            try:
                item = next(stream)
            except BaseException as error:
                if self._stream is stream:
                    self._stream = None
                if isinstance(error, StopIteration):
                    return
                raise
            yield item

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

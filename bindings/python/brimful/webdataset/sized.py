"""A pipeline class with a length, for programs that insist on one: it can be pickled, as its base can."""

from __future__ import annotations

from functools import cache
from typing import Any


def with_size(pipeline: Any, size: int) -> Any:
    """Gives `pipeline` the length `size`, in place, by making it one of a subclass of its class."""
    pipeline.size = size
    base = getattr(type(pipeline), "unsized", type(pipeline))
    pipeline.__class__ = _sized(base)
    return pipeline


@cache
def _sized(base: type) -> type:
    members = {"__len__": _length, "__reduce_ex__": _reduce, "unsized": base, "__module__": base.__module__}
    return type(f"{base.__name__}_Length", (base,), members)


def _length(self: Any) -> int:
    return self.size


def _reduce(self: Any, protocol: int) -> Any:
    get_state = getattr(self, "__getstate__", None)
    return _rebuild, (self.unsized,), get_state() if get_state is not None else self.__dict__


def _rebuild(base: type) -> Any:
    return object.__new__(_sized(base))

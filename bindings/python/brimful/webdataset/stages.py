"""What a pipeline is made of: stage objects, and functions whose first argument is filled in later.

Stages that can be pickled go to worker processes; that is why nothing here closes over local functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class PipelineStage:
    """A stage with state of its own: `run(source)` gives an iterator over what comes out."""

    def invoke(self, *args: Any, **kw: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no `invoke`; stages of a pipeline are asked to `run`")


class FilterFunction:
    """A function over an iterator, with all arguments but that iterator filled in."""

    def __init__(self, f: Callable[..., Any], *args: Any, **kw: Any) -> None:
        self.f = f
        self.args = args
        self.kw = kw

    def __call__(self, data: Iterable[Any]) -> Iterator[Any]:
        return self.f(data, *self.args, **self.kw)

    def __repr__(self) -> str:
        arguments = [repr(arg) for arg in self.args] + [f"{name}={value!r}" for name, value in self.kw.items()]
        return f"<{getattr(self.f, '__name__', self.f)}({', '.join(arguments)})>"


class RestCurried:
    """Called with the other arguments of a function, makes a `FilterFunction` of it."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f

    def __call__(self, *args: Any, **kw: Any) -> FilterFunction:
        return FilterFunction(self.f, *args, **kw)


def pipelinefilter(f: Callable[..., Any]) -> RestCurried:
    """Makes a stage of a function whose first argument is an iterator."""
    return functools.update_wrapper(RestCurried(f), f)


def stage_name(stage: Any) -> str:
    """What a stage is called, for people."""
    stage = stage.f if isinstance(stage, FilterFunction) else stage
    return (getattr(stage, "__name__", None) or type(stage).__name__).lstrip("_")

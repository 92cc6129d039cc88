"""A source and stages behind it, as one iterable.

What a stage does is the stage's business; which of them run natively is decided in `recognition`.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ..explanation import Explanation
from . import sized
from .epochs import Epochs
from .pytorch import DataLoader, IterableDataset
from .stages import PipelineStage
from .tariterators import is_strict


class DataPipeline(IterableDataset, PipelineStage):
    """A pipeline of stages, of which the first is a source.

    Args:
        args: a source (a data set, a loader, a function without arguments), then stages: functions of an iterator,
            or objects with `run(iterator)`. None is left out, and lists stand for what is in them.
        compat: "strict" for webdataset's behaviour where brimful has another one, and for Python alone.
    """

    def __init__(self, *args: Any, compat: str | None = None, **kwargs: Any) -> None:
        super().__init__()
        self.pipeline: list[Any] = [stage for arg in args for stage in _flat(arg)]
        self.compat = compat
        self.strict = is_strict(compat)
        self.length = -1
        self.repetitions = 1
        self.nsamples = -1
        self._epochs = False
        self._running: Epochs | None = None
        self._delivery: Any = None

    def invoke(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """The iterator that a stage makes, of the one before it unless it is the first."""
        if not args and isinstance(f, (IterableDataset, DataLoader)):
            return iter(f)
        if isinstance(f, PipelineStage):
            return f.run(*args, **kwargs)
        if isinstance(f, list):
            return iter(f)
        if callable(f):
            return f(*args, **kwargs)
        if not args and isinstance(f, Iterable):
            return iter(f)
        place = "first" if not args else "later"
        raise ValueError(
            f"{f!r} cannot be a {place} stage of a pipeline: the first is a data set, a loader or a function without "
            "arguments, a later one a function of an iterator or an object with run(iterator)"
        )

    def run(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """The pipeline as the first stage of another one."""
        if args:
            raise ValueError("a whole pipeline can only be the first stage of another one, as it has its own source")
        return iter(self)

    def iterator1(self) -> Iterator[Any]:
        """One pass over the source."""
        if not self.pipeline:
            raise ValueError("the pipeline is empty; its first stage is a source, such as SimpleShardList(urls)")
        # Imported here: what is recognised there is made of pipelines.
        from . import native

        source, stages = native.head(self) or (self.invoke(self.pipeline[0]), 1)
        for stage in self.pipeline[stages:]:
            source = self.invoke(stage, source)
        return source

    def explain(self) -> Explanation:
        """Which stages run natively, which in Python, and why."""
        from . import native

        return native.explain(self)

    def iterator(self) -> Iterator[Any]:
        """As many passes as were asked for; one that gives nothing is the last."""
        for _ in range(self.repetitions):
            is_empty = True
            for sample in self.iterator1():
                is_empty = False
                yield sample
            if is_empty:
                break

    def __iter__(self) -> Iterator[Any]:
        if self._epochs and not self.strict:
            if self._running is None:
                self._running = Epochs(self.iterator)
            return self._running.next(self.nsamples if self.nsamples > 0 else None)
        if self.nsamples > 0 and (self.repetitions != 1 or not self.strict):
            return islice(self.iterator(), self.nsamples)
        return self.iterator()

    def stage(self, i: int) -> Any:
        """The stage with the number `i`."""
        return self.pipeline[i]

    def append(self, f: Any) -> None:
        """Adds a stage to this pipeline."""
        self.pipeline.append(f)
        self._running = None

    def compose(self, *args: Any) -> Any:
        """A copy of this pipeline with more stages."""
        result = copy.copy(self)
        result.pipeline = [*self.pipeline, *args]
        return result

    def with_length(self, n: int, silent: bool = False) -> Any:
        """Makes `len()` of this pipeline `n`; the samples stay as many as they are."""
        if not silent:
            warnings.warn(
                "with_length() changes what len() says, not how many samples there are; silent=True says nothing",
                stacklevel=2,
            )
        return sized.with_size(self, n)

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Any:
        """Makes epochs of so many items of what comes out, each going on where the last one ended.

        In a loader with worker processes each worker gives as many, and begins anew each epoch unless the loader has
        persistent_workers=True.
        """
        self.repetitions = sys.maxsize
        self.nsamples = max(nsamples, nbatches)
        self._epochs = True
        self._running = None
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Any:
        """Makes each iteration `nepochs` passes, or endlessly many, cut after `nbatches` items."""
        self.repetitions = nepochs if nepochs > 0 else sys.maxsize
        self.nsamples = nbatches
        self._epochs = False
        return self

    def close(self) -> None:
        """Closes those stages that can be closed; the pipeline cannot be used after."""
        self._running = self._delivery = None
        for stage in self.pipeline:
            if hasattr(stage, "close"):
                stage.close()
        del self.pipeline

    def __copy__(self) -> Any:
        other = object.__new__(type(self))
        other.__dict__.update(self._state())
        return other

    def __getstate__(self) -> dict[str, Any]:
        return self._state()

    def _state(self) -> dict[str, Any]:
        # What runs belongs to one object in one process.
        return {**self.__dict__, "_running": None, "_delivery": None}


def _flat(stage: Any) -> Iterator[Any]:
    if isinstance(stage, list):
        for part in stage:
            yield from _flat(part)
    elif stage is not None:
        yield stage

"""The Python stages of one loader: what they do, where they run, what they did. Iterating is `batches`' work."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

from ..errors import InvalidOptionError, choice
from .child import Setup
from .contention import Span
from .draws import Source, source_of
from .failure import name_of
from .placement import PROCESSES, Placement, Rules
from .recipe import Recipe
from .segment import Recycler
from .worker import Workers

# Threads or processes that are at work for more than this share of the time are the limit.
_BUSY = 0.75

WISHES = ("auto", "threads", "processes")


class Stages:
    """Made once a loader. A copy in another process begins anew, with nothing measured and nothing started.

    Args:
        dataset: a `ShardDataset`, whose compiled transform says what is left for Python.
        collate_fn: makes a batch of a list of samples; None for torch's rules, or NumPy's.
        num_workers: threads or processes; 0 for as many threads as cores.
        wish: "auto", "threads" or "processes".
        context: how processes are started: a method of multiprocessing, a context, or None for the platform's.
        worker_init_fn: called in each worker process with its number.
        prefetch: batches made ahead, in all; 0 for one more than there are workers.
        seed: the loader's.
        arrays: "torch" or "numpy".
        is_nested: whether this process is a worker itself.
        shown: the data set that `torch.utils.data.get_worker_info()` tells of, if it is another.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate_fn: Callable | None,
        num_workers: int,
        wish: str,
        context: Any,
        worker_init_fn: Callable | None,
        prefetch: int,
        seed: int,
        arrays: str,
        is_nested: bool = False,
        shown: Any = None,
    ) -> None:
        choice("stages", wish, WISHES)
        compiled = dataset.compiled
        self.recipe = Recipe(
            steps=compiled.python,
            takes_picture=bool(compiled.python) and not compiled.makes_tensor,
            is_image=tuple(dataset.native.image_fields),
            names=_names(dataset.fields),
            target_transform=dataset.target_transform,
            collate_fn=collate_fn,
            arrays=arrays,
        )
        self._num_workers = num_workers
        self.count = 1 if is_nested else num_workers or _cores()
        self.ahead = max(prefetch, self.count) if prefetch else self.count + 1
        self._context = context
        self._setup = Setup(
            self.recipe, dataset if shown is None else shown, worker_init_fn, self.count, seed % (1 << 62)
        )
        functions = self.recipe.functions
        self._rules = Rules(
            wish=wish,
            num_workers=num_workers,
            source=self.recipe.source,
            drawers=tuple(name_of(step) for step in functions if source_of(step) in (Source.GLOBAL, Source.UNKNOWN)),
            has_init=worker_init_fn is not None,
            is_nested=is_nested,
        )
        self._begin()

    def _begin(self) -> None:
        self.placement = Placement(self._rules)
        self.recycler = Recycler()
        self._workers: Workers | None = None
        self._lock = threading.Lock()
        self._counts = {"samples": 0, "failures": 0, "busy_s": 0.0, "cpu_s": 0.0, "waited_s": 0.0}
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        names = ("recipe", "_num_workers", "count", "ahead", "_context", "_setup", "_rules")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    def layout(self) -> str | None:
        """The order in which images are wanted of the native side; None where it is the user's to say."""
        if not self.recipe.steps:
            return None
        return "NHWC" if self.recipe.takes_picture else "NCHW"

    @property
    def is_forking(self) -> bool:
        """Whether worker processes begin as copies of this one."""
        return self._multiprocessing().get_start_method() == "fork"

    @property
    def needs_workers(self) -> bool:
        """Whether worker processes are wanted and are not there."""
        return self.placement.where == PROCESSES and not (self._workers is not None and self._workers.is_started)

    def start_workers(self) -> None:
        """Starts worker processes, or settles for threads where they cannot be had.

        Raises:
            InvalidOptionError: if nothing but processes was asked for.
        """
        workers = Workers(self._multiprocessing(), self._setup)
        try:
            workers.start()
        except Exception as error:
            if not self.placement.refuse(f"{type(error).__name__}: {error}"):
                raise InvalidOptionError(
                    f"worker processes cannot be started: {type(error).__name__}: {error}",
                    hint="functions of a module can be sent to a process, lambdas and local ones only by "
                    'multiprocessing_context="fork"; stages="threads" needs no processes',
                ) from error
            return
        self._workers = workers

    @property
    def workers(self) -> Workers | None:
        return self._workers

    def discard_workers(self) -> None:
        """Ends the worker processes; the next iteration starts others."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _multiprocessing(self) -> Any:
        context = self._context
        return multiprocessing.get_context(context) if context is None or isinstance(context, str) else context

    def did(self, samples: int, span: Span) -> None:
        """Counts a batch that was made."""
        with self._lock:
            self._counts["samples"] += samples
            self._counts["busy_s"] += span.wall_s
            self._counts["cpu_s"] += span.cpu_s

    def failed(self) -> None:
        with self._lock:
            self._counts["failures"] += 1

    def waited(self, seconds: float) -> None:
        """Counts the time for which a thread waited for native rows."""
        with self._lock:
            self._counts["waited_s"] += seconds

    def stats(self) -> dict[str, Any]:
        """What the Python stages did, and where."""
        with self._lock:
            counts = dict(self._counts)
        pids = self._workers.pids if self._workers is not None else []
        return {**self.placement.document(), "workers": self.count, "pids": pids, **counts}

    def joined(self, native: dict[str, Any]) -> dict[str, Any]:
        """The statistics of a native loader with those of the Python stages behind it."""
        own = self.stats()
        busy = own["busy_s"] / max(native["wall_s"] * self.count, 1e-9)
        # To the native side these stages are the consumer that keeps it waiting.
        is_here = native["bottleneck"] == "consumer" and busy > _BUSY
        return {**native, "bottleneck": "python" if is_here else native["bottleneck"], "python": own}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of everything that runs in Python, in order."""
        recipe = self.recipe
        target = ("target_transform",) if recipe.target_transform is not None else ()
        return (*(name_of(step) for step in recipe.steps), *target, "collate_fn")

    def notes(self) -> tuple[str, ...]:
        """Where Python steps run, and why there, for `explain()`."""
        placement = self.placement
        kind = "worker processes" if placement.where == PROCESSES else "threads"
        notes = [f"Python steps run in {self.count} {kind}: {placement.why}"]
        if (randomness := placement.randomness()) is not None:
            notes.append(randomness)
        return tuple(notes)


class Single:
    """A collate function for samples that are no batches: what `convert` makes of each alone."""

    def __init__(self, convert: Callable) -> None:
        self.convert = convert

    def __call__(self, samples: list[Any]) -> Any:
        return self.convert(samples[0])


def _names(fields: Any) -> tuple[str, ...] | str | None:
    if isinstance(fields, str):
        return ""
    return tuple(fields) if isinstance(fields, dict) else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

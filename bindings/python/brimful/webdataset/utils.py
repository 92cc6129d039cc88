"""webdataset's helpers, under the module name that other libraries import them from; most are made elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from glob import glob
from itertools import islice
from typing import Any

from .braces import braceexpand
from .stages import PipelineStage
from .workers import pytorch_worker_info, pytorch_worker_seed

__all__ = [
    "PipelineStage",
    "enforce_security",
    "fnmatch_with_braces",
    "glob_with_braces",
    "guess_batchsize",
    "identity",
    "is_iterable",
    "make_seed",
    "pytorch_worker_info",
    "pytorch_worker_seed",
    "repeatedly",
]

# Forbids local files, commands, pickles and rewriting of URLs, whatever is allowed. WDS_SECURE=1 sets it.
enforce_security = bool(int(os.environ.get("WDS_SECURE", "0")))


def identity(x: Any) -> Any:
    """`x`."""
    return x


def is_iterable(obj: Any) -> bool:
    """Whether `obj` can be iterated over and is no text."""
    return isinstance(obj, Iterable) and not isinstance(obj, (str, bytes))


def glob_with_braces(pattern: str) -> list[str]:
    """The files that a glob with braces names."""
    return [path for expanded in braceexpand(pattern) for path in glob(expanded)]


def fnmatch_with_braces(filename: str, pattern: str) -> bool:
    """Whether a name fits a glob with braces."""
    return any(fnmatch(filename, expanded) for expanded in braceexpand(pattern))


def make_seed(*args: Any) -> int:
    """A number of 31 bits that derives from `args`."""
    seed = 0
    for arg in args:
        seed = (seed * 31 + hash(arg)) & 0x7FFFFFFF
    return seed


def guess_batchsize(batch: Any) -> int:
    """The number of rows in the first column."""
    return len(batch[0])


def repeatedly0(loader: Iterable[Any], nepochs: int = sys.maxsize, nbatches: int = sys.maxsize) -> Iterator[Any]:
    """`nepochs` times the first `nbatches` of a loader."""
    for _ in range(nepochs):
        yield from islice(loader, nbatches)


def repeatedly(
    source: Iterable[Any],
    nepochs: int | None = None,
    nbatches: int | None = None,
    nsamples: int | None = None,
    batchsize: Callable[[Any], int] = guess_batchsize,
) -> Iterator[Any]:
    """A source again and again, until so many epochs, batches or samples came."""
    epochs = batches = samples = 0
    while nepochs is None or epochs < nepochs:
        before = batches
        for batch in source:
            yield batch
            batches += 1
            if nsamples is not None:
                samples += batchsize(batch)
                if samples >= nsamples:
                    return
            if nbatches is not None and batches >= nbatches:
                return
        if batches == before:
            # An empty source would be asked for ever.
            return
        epochs += 1

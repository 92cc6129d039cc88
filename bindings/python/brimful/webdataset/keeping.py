"""Stages that keep what went through them, and give it again the next time: in memory, or in an LMDB database."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import InvalidOptionError
from .stages import PipelineStage

COMPLETE = b"_"


class Cached(PipelineStage):
    """Keeps all samples in memory, once they went through to the last one."""

    def __init__(self) -> None:
        self.cached: list[Any] | None = None

    def run(self, source: Iterable[Any]) -> Iterator[Any]:
        if self.cached is not None:
            yield from self.cached
            return
        kept = []
        for sample in source:
            kept.append(sample)
            yield sample
        self.cached = kept


class LMDBCached(PipelineStage):
    """Keeps all samples in a database on disk, once they went through to the last one.

    What is in the database is unpickled: read none that others may write to.

    Args:
        fname: path of the database.
        map_size: the most bytes it may have.
        pickler: a module with `dumps` and `loads`.
        chunksize: samples that are written at a time.
    """

    def __init__(
        self, fname: str | os.PathLike, map_size: float = 1e12, pickler: Any = pickle, chunksize: int = 500
    ) -> None:
        try:
            import lmdb
        except ImportError as error:
            raise ImportError(
                "a database of samples is LMDB's: `pip install lmdb`, or keep them in memory with mcached()"
            ) from error
        if chunksize < 1:
            raise InvalidOptionError(f"chunksize={chunksize}", hint="at least one sample is written at a time")
        self.db = lmdb.open(os.fspath(fname), readonly=False, map_size=int(map_size))
        self.pickler = pickler
        self.chunksize = chunksize

    def is_complete(self) -> bool:
        """Whether the database has all samples."""
        with self.db.begin(write=False) as transaction:
            return transaction.get(COMPLETE) is not None

    def add_samples(self, samples: Iterable[tuple[str, Any]]) -> None:
        """Writes samples under their keys."""
        with self.db.begin(write=True) as transaction:
            for key, sample in samples:
                transaction.put(key.encode(), self.pickler.dumps(sample))

    def run(self, source: Iterable[Any]) -> Iterator[Any]:
        if self.is_complete():
            with self.db.begin(write=False) as transaction:
                for key, value in transaction.cursor():
                    if key != COMPLETE:
                        yield self.pickler.loads(value)
            return
        waiting = []
        for number, sample in enumerate(source):
            # Samples without a key, or with one that came before, are kept all the same: in their order.
            key = sample.get("__key__") if isinstance(sample, dict) else None
            waiting.append((f"{number:012d} {key or ''}", sample))
            if len(waiting) >= self.chunksize:
                self.add_samples(waiting)
                waiting = []
            yield sample
        self.add_samples(waiting)
        with self.db.begin(write=True) as transaction:
            transaction.put(COMPLETE, b"1")

"""Runs a plan: the native loader behind a pipeline's first stages, and what the stages would have given of its batches.

Which stages those are is `recognition`'s matter. A delivery belongs to one pipeline in one process and keeps its
threads from epoch to epoch.
"""

from __future__ import annotations

import os
import random
import tarfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import _native
from ..dataset import ShardDataset
from ..engine import Batches, Engine
from ..errors import (
    BrimfulError,
    DataWarning,
    DecodeError,
    FieldValueError,
    MissingFieldError,
    NotFoundError,
    ShardError,
)
from ..explanation import stream_notes
from ..ranks import WHOLE, Split
from . import ordering, splitting, workers
from .autodecode import DecodingError
from .batching import _batched, combine_values
from .columns import Column, present
from .dataset import check_empty
from .gopen import local_path
from .recognition import Plan

# Rows of a native batch where single samples are wanted.
ROWS = 16


class Delivery:
    """What the stages of a plan give, made natively.

    Args:
        plan: what they do.
        threads: that decode, 0 for all cores.
    """

    def __init__(self, plan: Plan, threads: int = 0) -> None:
        self.plan = plan
        self.threads = threads
        self._made_in = os.getpid(), workers.pytorch_worker_info()
        self._compiled = [column.compiled() for column in plan.columns]
        if sum(column.image_spec is not None for column in plan.columns) > 1:
            # The native side has one transform for all images of a sample.
            self._compiled = [None] * len(plan.columns)
        # Behind the columns of the plan, what an error needs to name a sample.
        self._names = ["__key__", "__url__"] if any(column.loads for column in plan.columns) else []
        self._engine: Engine | None = None
        place = workers.pytorch_worker_info()
        # Worker processes know of no other rank's order or epoch, and take shards as the splitters say.
        is_split = place.world_size > 1 and not workers.is_worker()
        self._by_sample = is_split and splitting.split_by_node in plan.splitters
        # What an order derives from that no stage has a seed for: ranks that share samples out must have the same.
        self._drawn = 0 if self._by_sample else random.getrandbits(63)
        # Passes that were begun, and the one that the loader was made for.
        self._passes = self._made_for = 0

    def serves(self, plan: Plan, threads: int) -> bool:
        """Whether this is the delivery of that plan in this process."""
        made_in = os.getpid(), workers.pytorch_worker_info()
        return (plan, threads, made_in) == (self.plan, self.threads, self._made_in)

    def __iter__(self) -> Iterator[Any]:
        return self._rows() if self.plan.batch is None else map(tuple, self.batches(combine_values))

    def batches(self, combine: Callable[[list[Any]], Any]) -> Iterator[list[Any]]:
        """Batches as lists of columns; what is not one natively is combined from its rows."""
        for columns in self.parts():
            yield [combine(column) if isinstance(column, list) else column for column in columns]

    def parts(self) -> Iterator[list[Any]]:
        """Batches as lists of columns, each an array if it is one natively, or else a list of its values."""
        engine = self._make_engine()
        if engine is not None and not _is_even(engine.dataset):
            for samples in _batched(self._rows(), self.plan.batch, None, self.plan.partial):
                yield [list(column) for column in zip(*samples)]
            return
        for batch in self._batches():
            columns = [
                column.whole(native, compiled)
                for column, native, compiled in zip(self.plan.columns, batch.columns, self._compiled)
            ]
            left = [place for place, column in enumerate(columns) if column is None]
            for place, values in zip(left, zip(*self._samples(batch, left))):
                columns[place] = list(values)
            yield columns

    def explain(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Native steps, Python steps on their values, and notes."""
        transforms, python = [], []
        for column, compiled in zip(self.plan.columns, self._compiled):
            transforms += [] if compiled is None else compiled.names
            rest = column.functions if compiled is None else compiled.python
            python += [
                getattr(function, "__qualname__", type(function).__name__)
                for function in rest
                if function is not present
            ]
        native = [name for name in self.plan.names if name not in ("map_dict", "map_tuple")]
        batched = native.pop() if self.plan.batch is not None and native[-1].startswith("batched") else None
        return (*native, *transforms, *([batched] if batched else ())), tuple(python), self._notes()

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.plan.shuffle:
            notes.append("samples of all shards are shuffled exactly, not through a buffer, unless shards are streams")
        if self._by_sample:
            notes.append("ranks get equal numbers of samples: the first ones again where they do not come out even")
        try:
            engine = self._make_engine()
        except (BrimfulError, OSError, ValueError, tarfile.ReadError):
            # Iterating says it, where it can be caught.
            engine = None
        return (*notes, *(stream_notes(engine.dataset) if engine is not None else ()))

    def _rows(self) -> Iterator[tuple]:
        for batch in self._batches():
            yield from self._samples(batch, range(len(self.plan.columns)))

    def _samples(self, batch: _native.Batch, places: Iterable[int]) -> Iterator[tuple]:
        """The values at `places` of each sample of a batch; functions in Python are called sample by sample."""
        natives, made = batch.columns, []
        for place in places:
            column = self.plan.columns[place]
            made.append((column, *column.values(natives[place], self._compiled[place])))
        for row in range(len(batch)):
            try:
                sample = tuple(
                    self._value(column, values[row], functions, natives, row) for column, values, functions in made
                )
            except Exception as error:
                # It raises, or the sample is left out.
                self.plan.handler(error)
                continue
            yield sample

    def _value(self, column: Column, value: Any, functions: tuple[Callable, ...], natives: list[Any], row: int) -> Any:
        if column.loads is not None:
            try:
                loaded = column.loads(value)
            except Exception as error:
                *_, keys, urls = natives
                field = column.field.removesuffix(":bytes")
                raise DecodingError(url=urls[row], key=keys[row], k=field) from error
            # None is a decoder's word for what it does not know: the JSON text null stays the bytes that it was.
            value = value if loaded is None else loaded
        for function in functions:
            value = function(value)
        return value

    def _batches(self) -> Iterator[_native.Batch]:
        engine = self._make_engine()
        while engine is not None:
            is_empty = True
            # An engine that was made for this pass begins to count at nothing, and would draw as in the first one.
            engine.native.set_epoch(self._passes)
            self._passes += 1
            try:
                for batch in Batches(engine, _same):
                    is_empty = False
                    yield batch
            except BrimfulError as error:
                raise translated(error) from error
            if not self.plan.endless or is_empty:
                break
            engine = self._make_engine()
        if self.plan.empty_check and (engine is None or (is_empty and _has_no_samples(engine))):
            # Raises what the stage would.
            yield from check_empty(())

    def _make_engine(self) -> Engine | None:
        """The loader of the next pass, or None where there are no shards for this process."""
        orders_shards = self.plan.shard_buffer and not self.plan.shuffle
        if self._engine is None or (orders_shards and self._made_for != self._passes):
            urls, split = self._share()
            if orders_shards:
                rng = ordering.generator(self.plan.seed if self.plan.seed is not None else self._drawn, self._passes)
                urls = list(ordering._shuffle(urls, self.plan.shard_buffer, self.plan.shard_buffer, rng))
            self._made_for = self._passes
            try:
                dataset = self._dataset([local_path(url) for url in urls])
            except BrimfulError as error:
                raise translated(error) from error
            self._engine = None if dataset is None else Engine(dataset, self._options(dataset, split))
        return self._engine

    def _share(self) -> tuple[list[str], Split]:
        """The shards of this process, and its share of their samples."""
        place = workers.pytorch_worker_info()
        if self._by_sample:
            # All ranks get equal numbers of samples, so that none waits for another at the end.
            return list(self.plan.urls), Split(place.rank, place.world_size)
        urls: Any = iter(self.plan.urls)
        for splitter in self.plan.splitters:
            urls = splitter(urls)
        return list(urls), WHOLE

    def _dataset(self, paths: list[str]) -> ShardDataset | None:
        transform = next(
            (list(c.functions) for c, it in zip(self.plan.columns, self._compiled) if it is not None), None
        )
        if self.plan.goes_on:
            paths = [path for path in paths if os.path.exists(path) or _left_out(path, "there is no such file")]
        while paths:
            try:
                return ShardDataset(
                    paths,
                    [column.field for column in self.plan.columns] + self._names,
                    transform,
                    damage="resync" if self.plan.goes_on else "strict",
                    duplicates="keep_first" if self.plan.goes_on else "error",
                )
            except ShardError as error:
                if not self.plan.goes_on or error.shard not in paths:
                    raise
                paths = [path for path in paths if path != error.shard or _left_out(path, error.message)]
        return None

    def _options(self, dataset: ShardDataset, split: Split) -> dict[str, Any]:
        is_whole = self.plan.batch is not None and _is_even(dataset)
        options: dict[str, Any] = {
            "batch_size": self.plan.batch if is_whole else ROWS,
            "delivery": "batches" if is_whole else "rows",
            "drop_last": is_whole and not self.plan.partial,
            "num_workers": self.threads,
            "on_error": "skip" if self.plan.goes_on else "raise",
            "split": split,
            "seed": self._seed(),
        }
        needs_pixels = any(c.image_spec and it is None for c, it in zip(self.plan.columns, self._compiled))
        makes_tensor = all(it is None or it.makes_tensor for it in self._compiled)
        if needs_pixels or not makes_tensor:
            options["layout"] = "NHWC"
        if self.plan.shuffle:
            options["shuffle"] = True
            if dataset.is_stream:
                options["shuffle_window"] = self.plan.shuffle
        return options

    def _seed(self) -> int:
        """What order and augmentation of this process derive from, beside the number of the pass."""
        seed = self._drawn if self.plan.seed is None else self.plan.seed
        place, offset = workers.pytorch_worker_info(), workers.round_offset()
        # Ranks that share samples out need one order, and so do those that all read everything and were given a seed.
        is_split = splitting.split_by_node in self.plan.splitters
        is_shared = self._by_sample or (self.plan.seed is not None and not is_split)
        others = (0 if is_shared else place.rank, place.worker, offset)
        if isinstance(seed, int) and not any(others):
            return seed
        return random.Random(f"{seed} {others}").getrandbits(63)


def translated(error: BrimfulError) -> Exception:
    """The exception that webdataset's stages raise where the native side raises this one."""
    if isinstance(error, (DecodeError, FieldValueError)):
        return DecodingError(url=error.shard, key=error.key, k=error.field)
    if isinstance(error, MissingFieldError):
        return ValueError(str(error))
    if isinstance(error, ShardError) and not isinstance(error, (NotFoundError, OSError)):
        return tarfile.ReadError(str(error))
    return error


def _is_even(dataset: ShardDataset) -> bool:
    """Whether all images have one size, so that they can share a native batch."""
    return dataset.native.image_size is not None or not any(dataset.native.image_fields)


def _has_no_samples(engine: Engine) -> bool:
    """Whether there are no samples, rather than only bad ones."""
    samples = engine.native.samples
    return not samples if samples is not None else not engine.native.bad_samples()


def _left_out(path: str, why: str) -> bool:
    warnings.warn(f"left out {path}: {why}", DataWarning, stacklevel=2)
    return False


def _same(batch: _native.Batch) -> _native.Batch:
    return batch

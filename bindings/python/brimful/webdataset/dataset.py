"""`WebDataset`: the pipeline from shards to samples that most programs begin with."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlparse

from ..errors import InvalidOptionError
from . import cache, ordering, shardlists, splitting
from .fluent import FluidInterface
from .handlers import reraise_exception
from .pipeline import DataPipeline
from .pytorch import IterableDataset
from .stages import pipelinefilter
from .tariterators import group_by_keys, tar_file_expander

Stage = Callable[[Iterable[Any]], Iterator[Any]]

expand_tar_files = pipelinefilter(tar_file_expander)
group_files = pipelinefilter(group_by_keys)

# What True means for shardshuffle.
SHARDSHUFFLE = 100


def check_empty(source: Iterable[Any]) -> Iterator[Any]:
    """All samples, and an error if there are none."""
    is_empty = True
    for sample in source:
        is_empty = False
        yield sample
    if is_empty:
        raise ValueError(
            "the data set has no samples here; are there fewer shards than workers and ranks? Take fewer workers, "
            "write more shards, or give empty_check=False"
        )


class WebDataset(DataPipeline, FluidInterface):
    """Samples of shards, dicts with `__key__`, `__url__` and the bytes of each field.

    Args:
        urls: a pattern (`train-{000000..000146}.tar`, `::` between several, `${X}` for the environment variable WDS_X),
            names, a folder with a slash at its end, a `.yaml` file or a dict that lists data sets, or a data set of
            `{"url": ...}`.
        handler: what to do about shards and files that fail.
        mode: "resampled" as `resampled=True`; of a folder, what becomes of shards that were read.
        resampled: go through the shards without end, each round in another order.
        shardshuffle: shards in the buffer from which the next one is drawn; False for none.
        cache_size: bytes of the copies of remote shards, -1 without a limit, 0 for no copies.
        cache_dir: a folder for them; WDS_CACHE sets it too.
        detshuffle: draw shards by seed and epoch alone.
        nodesplitter, workersplitter: which shards are for this rank and this worker; None for all.
        select_files, rename_files: of a file's name, whether it is wanted, and another name.
        empty_check: whether it is an error that there are no samples.
        seed: of the order of shards; WDS_SEED sets it too, and without either it is drawn once.
        repeat, url_to_name, verbose: taken and without meaning, as in webdataset.
        compat: "strict" for what webdataset does where brimful has another way, and for Python alone.
    """

    def __init__(
        self,
        urls: Any,
        handler: Callable[[Exception], bool] = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: int | bool | None = None,
        cache_size: float = -1,
        cache_dir: str | os.PathLike | None = None,
        url_to_name: Any = cache.pipe_cleaner,
        detshuffle: bool = False,
        nodesplitter: Stage | None = splitting.single_node_only,
        workersplitter: Stage | None = splitting.split_by_worker,
        select_files: Callable[[str], bool] | None = None,
        rename_files: Callable[[str], str] | None = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: Any = None,
        compat: str | None = None,
    ) -> None:
        super().__init__(compat=compat)
        resampled = resampled or mode == "resampled"
        buffer = _shard_buffer(shardshuffle, resampled)
        self.seed = _seed(seed)
        # A seed that nobody gave is another one in each process, which matters where ranks share samples out.
        is_drawn = seed is None and "WDS_SEED" not in os.environ
        self.cache_dir, self.cache_size = _cache(cache_dir, cache_size)
        self.append(self._shards(urls, resampled, mode, 0 if is_drawn else self.seed))
        for splitter in (nodesplitter, workersplitter):
            if splitter:
                self.append(splitter)
        if buffer and detshuffle:
            self.append(ordering.detshuffle(buffer, seed=self.seed, compat=compat))
        elif buffer:
            self.append(ordering.shuffle(buffer, seed=self.seed, compat=compat))
        for stage in self.pipeline:
            if hasattr(stage, "seed"):
                stage.is_drawn = is_drawn
        if self.cache_dir is None or self.cache_size == 0:
            self.append(cache.StreamingOpen(handler=handler))
        else:
            self.append(cache.FileCache(self.cache_dir, cache_size=self.cache_size, handler=handler))
        names = {"select_files": select_files, "rename_files": rename_files}
        self.append(expand_tar_files(handler=handler, compat=compat, **names))
        self.append(group_files(handler=handler, compat=compat))
        if empty_check:
            self.append(check_empty)

    def _shards(self, urls: Any, resampled: bool, mode: str | None, shared_seed: Any) -> Any:
        if isinstance(urls, os.PathLike):
            urls = os.fspath(urls)
        if isinstance(urls, dict):
            return shardlists.MultiShardSample(urls, shared_seed)
        if isinstance(urls, IterableDataset):
            return urls
        if isinstance(urls, str):
            if urls.endswith((".yaml", ".yml")):
                return shardlists.MultiShardSample(urls, shared_seed)
            if urls.endswith(".json"):
                raise ValueError(
                    f"{urls}: lists of shards as JSON are not read; give a pattern, names, or a .yaml file with the "
                    "key 'datasets'"
                )
            if urlparse(urls).path.endswith("/"):
                return shardlists.DirectoryShardList(urls, mode=mode)
        elif not isinstance(urls, Iterable) or isinstance(urls, bytes):
            raise ValueError(f"shards are given as a pattern or as names, not as {type(urls).__name__}")
        if not resampled:
            return shardlists.SimpleShardList(urls)
        return shardlists.ResampledShards(urls) if self.strict else shardlists.EndlessShards(urls, seed=self.seed)

    def __enter__(self) -> WebDataset:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


class FluidWrapper(DataPipeline, FluidInterface):
    """Gives the stages' methods to any data set."""

    def __init__(self, initial: Any, compat: str | None = None) -> None:
        super().__init__(compat=compat)
        self.append(initial)


def _shard_buffer(shardshuffle: Any, resampled: bool) -> int:
    if resampled:
        if shardshuffle:
            warnings.warn(
                f"shardshuffle={shardshuffle} is ignored: resampled shards come in a random order", stacklevel=3
            )
        return 0
    if shardshuffle is None:
        warnings.warn(
            "shardshuffle is not given, so shards come in order; say shardshuffle=False, or a number of shards",
            stacklevel=3,
        )
        return 0
    if shardshuffle is True:
        warnings.warn(f"shardshuffle=True stands for {SHARDSHUFFLE}; give a number of shards", stacklevel=3)
        return SHARDSHUFFLE
    return int(shardshuffle)


def _seed(seed: Any) -> Any:
    if seed is not None:
        return seed
    text = os.environ.get("WDS_SEED")
    if text is None:
        return random.randint(0, 1_000_000)
    try:
        return int(text)
    except ValueError:
        raise InvalidOptionError(f"WDS_SEED is {text!r}", hint="set it to an integer, or give seed=") from None


def _cache(folder: Any, size: float) -> tuple[str | None, float]:
    folder = os.environ.get("WDS_CACHE") if folder is None else folder
    if "WDS_CACHE_SIZE" in os.environ and size == -1:
        size = float(os.environ["WDS_CACHE_SIZE"])
    if folder is None:
        return None, size
    folder = os.path.expanduser(os.fspath(folder))
    if not os.path.isdir(folder):
        raise ValueError(f"cache directory {folder} does not exist; make it first, or leave cache_dir out")
    return folder, size

"""Lists of shards: from a string, in order, resampled, or round after round; each yields `{"url": ...}`.

What reads the shards is elsewhere; a folder that is watched is in `folders`, and a file that lists data sets in
`shardspec`.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from . import workers
from .braces import braceexpand
from .folders import DirectoryShardList
from .pytorch import IterableDataset
from .shardspec import MSSource, MultiShardSample
from .splitting import non_empty, single_node_only, split_by_node, split_by_worker
from .stages import pipelinefilter

__all__ = [
    "DirectoryShardList",
    "EndlessShards",
    "MSSource",
    "MultiShardSample",
    "ResampledShardList",
    "ResampledShards",
    "SimpleShardList",
    "envsubst",
    "expand_source",
    "expand_urls",
    "non_empty",
    "resampled",
    "resampled_",
    "shardspec",
    "single_node_only",
    "split_by_node",
    "split_by_worker",
]

# How often a variable's value may name a variable again.
NESTING_MAX = 10


def envlookup(match: re.Match) -> str:
    """The value of the environment variable WDS_X for `${X}`."""
    name = "WDS_" + match.group(1)
    assert name in os.environ, f"${{{match.group(1)}}} stands for the environment variable {name}, which is not set"
    return os.environ[name]


def envsubst(text: str) -> str:
    """`text` with each `${X}` replaced by the environment variable WDS_X."""
    return re.sub(r"\$\{(\w+)\}", envlookup, text)


def expand_urls(urls: str) -> list[str]:
    """The shards that a string means: `::` between patterns, `${X}` for WDS_X, and braces."""
    expanded = []
    for pattern in urls.split("::"):
        for _ in range(NESTING_MAX):
            before, pattern = pattern, envsubst(pattern)
            if pattern == before:
                break
        expanded.extend(braceexpand(pattern))
    return expanded


def expand_source(source: str | Iterable[str], max_urls: int = int(1e9)) -> list[str]:
    """The shards that a string or an iterable of strings means."""
    if isinstance(source, str):
        return expand_urls(source)
    if isinstance(source, list):
        return source
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return list(islice(source, max_urls))
    raise ValueError(f"shards are given as a pattern or a list of names, not as {type(source).__name__}")


class SimpleShardList(IterableDataset):
    """Shards in the order given, or shuffled by `seed`; True takes the time as the seed."""

    def __init__(self, urls: str | Iterable[str], seed: Any = None) -> None:
        super().__init__()
        self.urls = expand_urls(urls) if isinstance(urls, str) else [_name(url) for url in urls]
        _check(self.urls)
        self.seed = time.time() if seed is True else seed

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[dict[str, str]]:
        urls = list(self.urls)
        if self.seed is not None:
            random.Random(self.seed).shuffle(urls)
        for url in urls:
            yield {"url": url}


class ResampledShards(IterableDataset):
    """Shards drawn with replacement, so that some come again before others came at all.

    Args:
        urls: a pattern or names.
        nshards: how many are drawn each time.
        seed: a number among those that draws derive from.
        worker_seed: called for a number that tells workers apart.
        deterministic: whether draws derive from seed, worker and epoch alone.
        max_urls: the most names that are taken from an iterable.
        empty_check: whether it is an error that there are no names.
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        nshards: int = sys.maxsize,
        seed: int = 0,
        worker_seed: Callable[[], int] | None = None,
        deterministic: bool = False,
        max_urls: int = int(1e6),
        empty_check: bool = True,
    ) -> None:
        super().__init__()
        self.urls = expand_source(urls, max_urls)
        if empty_check and not self.urls:
            raise ValueError(f"{urls!r} names no shards; give at least one, or empty_check=False")
        self.nshards = nshards
        self.seed = seed
        self.worker_seed = workers.pytorch_worker_seed if worker_seed is None else worker_seed
        self.deterministic = deterministic
        self.epoch = -1

    def __iter__(self) -> Iterator[dict[str, str]]:
        self.epoch += 1
        parts = [self.worker_seed(), self.epoch, workers.round_offset(), self.seed]
        if not self.deterministic:
            parts.append(os.urandom(16).hex())
        self.rng = random.Random(" ".join(map(str, parts)))
        for _ in range(self.nshards if self.urls else 0):
            yield {"url": self.rng.choice(self.urls)}


ResampledShardList = ResampledShards


class EndlessShards(IterableDataset):
    """All shards, round after round without end, each round in an order of its own: none comes twice in a round.

    All workers have the same order, so that splitters behind it share a round out among them.
    """

    def __init__(self, urls: str | Iterable[str], seed: Any = 0, max_urls: int = int(1e6)) -> None:
        super().__init__()
        self.urls = expand_source(urls, max_urls)
        _check(self.urls)
        self.seed = seed
        self.epoch = -1

    def __iter__(self) -> Iterator[dict[str, str]]:
        self.epoch += 1
        rng = random.Random(f"{self.seed} {workers.round_offset()} {self.epoch}")
        while True:
            urls = list(self.urls)
            rng.shuffle(urls)
            for url in urls:
                yield {"url": url}


def resampled_(src: Iterable[Any], n: int = sys.maxsize) -> Iterator[Any]:
    """`n` of the items of `src`, drawn with replacement."""
    items = list(src)
    rng = random.Random(os.urandom(20))
    for _ in range(n if items else 0):
        yield rng.choice(items)


resampled = pipelinefilter(resampled_)


def shardspec(spec: str) -> IterableDataset:
    """The shards of a `.yaml` file, or of a pattern."""
    return MultiShardSample(spec) if spec.endswith((".yaml", ".yml")) else SimpleShardList(spec)


def _name(url: Any) -> Any:
    return os.fspath(url) if isinstance(url, os.PathLike) else url


def _check(urls: list[Any]) -> None:
    if not urls:
        raise IndexError("no shards are given; give a pattern such as train-{000000..000146}.tar, or at least one name")
    if not isinstance(urls[0], str):
        raise AssertionError(f"shards are named by strings, not by {type(urls[0]).__name__}: one string each")

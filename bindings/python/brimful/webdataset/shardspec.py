"""Data sets that a YAML file lists, and how many shards of each an epoch takes."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import DataWarning
from . import workers
from .braces import braceexpand
from .pytorch import IterableDataset


@dataclass
class MSSource:
    """One of the data sets: all its shards, or some each epoch."""

    name: str = ""
    perepoch: int = -1
    resample: bool | int = False
    urls: list[str] = field(default_factory=list)


class MultiShardSample(IterableDataset):
    """The shards of several data sets, mixed.

    The file, or a dict like it, has `datasets`, each with `shards` (patterns), and if wanted `name`, `buckets` (one
    folder or URL before the shards), and `resample: k` (k shards an epoch, drawn with replacement) or `choose: k`
    (without); `prefix` and `buckets` beside `datasets` are for all of them.

    What is drawn derives from `seed` and the number of times that shards were asked for, the same on all ranks, so
    that splitters behind it share one choice out. Worker processes begin to count anew each epoch: in a job of one
    rank torch's seed of the epoch is added, in one of several ranks `set_epoch` must tell the epochs apart.
    """

    def __init__(self, fname: str | dict[str, Any], seed: Any = 0) -> None:
        super().__init__()
        self.epoch = -1
        self.seed = seed
        self.told: Any = None
        self.sources: list[MSSource] = []
        self.parse_spec(fname)

    def parse_spec(self, fname: str | dict[str, Any]) -> None:
        """Reads the file or dict."""
        spec = fname if isinstance(fname, dict) else _load_yaml(fname)
        _check_names(spec, {"prefix", "datasets", "buckets"}, "a list of data sets")
        prefix = _expand(spec.get("prefix", ""))
        self.sources = [self._source(entry, prefix, spec.get("buckets", [])) for entry in spec["datasets"]]

    def _source(self, entry: dict[str, Any], prefix: str, buckets: Any) -> MSSource:
        _check_names(entry, {"buckets", "name", "shards", "resample", "choose"}, "a data set")
        buckets = entry.get("buckets", buckets) or [""]
        buckets = [buckets] if isinstance(buckets, str) else buckets
        assert len(buckets) == 1, (
            f"one bucket is possible for a data set, not {buckets}; list the data set once for each"
        )
        bucket = _expand(buckets[0])
        patterns = entry["shards"]
        patterns = [patterns] if isinstance(patterns, str) else patterns
        names = [name for pattern in patterns for name in braceexpand(_expand(pattern))]
        urls = [prefix + os.path.join(bucket, name) for name in names]
        resample, choose = entry.get("resample", -1), entry.get("choose", -1)
        if choose > len(urls):
            raise ValueError(f"choose: {choose} of {len(urls)} shards is not possible; resample: {choose} is")
        if choose > 0 and resample > 0:
            raise ValueError("resample draws with replacement and choose without; give one of them")
        return MSSource(entry.get("name", "@" + bucket), choose, resample, urls)

    def set_epoch(self, seed: Any) -> None:
        """Makes the next choice derive from `seed`, the number of the epoch."""
        self.epoch = -1
        self.told = seed

    def get_shards_for_epoch(self) -> list[str]:
        """The shards of one epoch, in the order they are read."""
        self.epoch += 1
        rng = random.Random(f"{self.seed} {self.told} {self._offset()} {self.epoch}")
        chosen: list[str] = []
        for source in self.sources:
            if source.resample > 0:
                chosen += rng.choices(source.urls, k=source.resample)
            elif source.perepoch > 0:
                chosen += rng.sample(source.urls, source.perepoch)
            else:
                chosen += source.urls
        rng.shuffle(chosen)
        return chosen

    def _offset(self) -> int:
        if self.told is not None or not workers.is_worker():
            return 0
        if workers.pytorch_worker_info().world_size == 1:
            return workers.round_offset()
        if self.epoch == 0:
            warnings.warn(
                "worker processes take the same shards of the list each epoch, since ranks must choose alike; call "
                "set_epoch(epoch) of the list of data sets before each, or give persistent_workers=True",
                DataWarning,
                stacklevel=4,
            )
        return 0

    def __iter__(self) -> Iterator[dict[str, str]]:
        for url in self.get_shards_for_epoch():
            yield {"url": url}


def _load_yaml(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise ImportError(
            f"{path} is YAML, which PyYAML reads: `pip install pyyaml`, or give the same as a dict"
        ) from error
    with open(path) as stream:
        return yaml.safe_load(stream)


def _check_names(spec: dict[str, Any], known: set[str], what: str) -> None:
    unknown = sorted(set(spec) - known)
    assert not unknown, f"{what} has no {unknown}; it has {sorted(known)}"


def _expand(text: str) -> str:
    return os.path.expanduser(os.path.expandvars(text))

"""Which shards of a list are for this rank, and which for this worker: every n-th of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from .workers import pytorch_worker_info


def split_by_node(src: Iterable[Any], group: Any = None) -> Iterator[Any]:
    """Every n-th item for each of n ranks."""
    place = pytorch_worker_info(group)
    yield from islice(src, place.rank, None, place.world_size)


def split_by_worker(src: Iterable[Any]) -> Iterator[Any]:
    """Every n-th item for each of n workers of a loader."""
    place = pytorch_worker_info()
    yield from islice(src, place.worker, None, place.num_workers)


def single_node_only(src: Iterable[Any], group: Any = None) -> Iterator[Any]:
    """All items, and an error in a job of several ranks, which would all see the same."""
    place = pytorch_worker_info(group)
    if place.world_size > 1:
        raise ValueError(
            f"this is rank {place.rank} of {place.world_size}, and nothing shares the shards out among them; give "
            "nodesplitter=split_by_node, or nodesplitter=None if every rank is to see all"
        )
    yield from src


def non_empty(src: Iterable[Any]) -> Iterator[Any]:
    """All items, and an error if there are none."""
    is_empty = True
    for item in src:
        is_empty = False
        yield item
    if is_empty:
        raise ValueError("nothing came out of the stages before non_empty; are there fewer shards than workers?")

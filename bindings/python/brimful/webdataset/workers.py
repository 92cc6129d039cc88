"""Which rank and which worker process this is, and which round of the data it is in."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ..errors import InvalidOptionError


class Place(NamedTuple):
    """This process among the ranks of a job and the workers of its loader."""

    rank: int
    world_size: int
    worker: int
    num_workers: int


def pytorch_worker_info(group: Any = None) -> Place:
    """Ranks from RANK and WORLD_SIZE or torch.distributed, workers from WORKER and NUM_WORKERS or torch's loader."""
    return Place(*_ranks(group), *_workers())


def pytorch_worker_seed(group: Any = None) -> int:
    """A number that no other worker of the job has."""
    place = pytorch_worker_info(group)
    return place.rank * 1000 + place.worker


def round_offset() -> int:
    """What tells one epoch of a worker process from the next.

    Worker processes start anew each epoch, and a count inside one would begin at nothing every time. torch draws a
    number for each epoch, the same in all workers, from the generator that `torch.manual_seed` sets.
    """
    info = _worker_info()
    return 0 if info is None else info.seed - info.id


def is_worker() -> bool:
    """Whether this is one of several workers, or a worker process of torch's, be it the only one."""
    return _worker_info() is not None or _workers()[1] > 1


def _ranks(group: Any) -> tuple[int, int]:
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _number("RANK"), _number("WORLD_SIZE")
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(group=group), distributed.get_world_size(group=group)


def _workers() -> tuple[int, int]:
    if "WORKER" in os.environ and "NUM_WORKERS" in os.environ:
        return _number("WORKER"), _number("NUM_WORKERS")
    info = _worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _worker_info() -> Any:
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise InvalidOptionError(
            f"the environment variable {name} is {os.environ[name]!r}", hint="set it to an integer, or unset it"
        ) from None

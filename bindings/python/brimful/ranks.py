"""Which process of a distributed job this is."""

from __future__ import annotations

import os
import sys
import warnings
from typing import NamedTuple

from .errors import InvalidOptionError


class Split(NamedTuple):
    """This process's share of the samples."""

    rank: int
    world_size: int


WHOLE = Split(0, 1)


def find() -> Split | None:
    """Rank and world size from torch.distributed if it runs, else from RANK and WORLD_SIZE."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Split(distributed.get_rank(), distributed.get_world_size())
    try:
        return Split(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    except (KeyError, ValueError):
        return None


def resolve(split: str | None, rank: int | None, world_size: int | None, stacklevel: int) -> Split:
    """The share that these arguments of a loader mean; without any of them, everything."""
    if split not in (None, "rank"):
        raise InvalidOptionError(f"split={split!r} is not known", hint='split is None or "rank"')
    if split is None and rank is None and world_size is None:
        found = find()
        if found is not None and found.world_size > 1:
            warnings.warn(
                f"this is rank {found.rank} of {found.world_size}, and every rank will see all samples; "
                'give split="rank" to share them out, or rank=0, world_size=1 to keep it so without this warning',
                stacklevel=stacklevel,
            )
        return WHOLE
    if rank is not None and world_size is not None:
        return Split(rank, world_size)
    if split is None:
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise InvalidOptionError(
            f"{given} is given without {missing}", hint='give both, or split="rank" to have them found'
        )
    found = find()
    if found is None:
        warnings.warn(
            'split="rank" found neither torch.distributed running nor RANK and WORLD_SIZE set: this process gets all '
            "samples; make the loader after init_process_group, or give rank and world_size",
            stacklevel=stacklevel,
        )
        found = WHOLE
    return Split(
        found.rank if rank is None else rank,
        found.world_size if world_size is None else world_size,
    )

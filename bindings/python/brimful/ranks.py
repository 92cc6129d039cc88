"""Which process of a distributed job this is: torch.distributed knows, else the environment that a launcher left."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from .errors import InvalidOptionError


class Split(NamedTuple):
    """This process's share of the samples."""

    rank: int
    world_size: int


WHOLE = Split(0, 1)

# Names that a launcher gives the rank and the number of processes, surest first. torchrun, accelerate and DeepSpeed set
# the first pair, also inside a job of Slurm, whose own names then count machines rather than processes.
LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE"),
)


def find(environment: Mapping[str, str] = os.environ) -> Split | None:
    """Rank and world size from torch.distributed if it runs, else from what torchrun, Slurm or MPI left.

    Raises:
        InvalidOptionError: if a launcher left something that is no rank.
    """
    if _is_distributed():
        distributed = sys.modules["torch.distributed"]
        return Split(distributed.get_rank(), distributed.get_world_size())
    for launcher, rank, world_size in LAUNCHERS:
        if rank in environment and world_size in environment:
            return _read(launcher, rank, world_size, environment)
    return None


def _is_distributed() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def _read(launcher: str, rank: str, world_size: str, environment: Mapping[str, str]) -> Split:
    try:
        found = Split(int(environment[rank]), int(environment[world_size]))
    except ValueError:
        found = Split(-1, 0)
    if not 0 <= found.rank < found.world_size:
        raise InvalidOptionError(
            f"{rank}={environment[rank]} and {world_size}={environment[world_size]}, set by {launcher}, are no rank",
            hint=f"unset {rank}, or give rank and world_size",
        )
    return found


def is_batch_script(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a rank found by Slurm's names is that of a job's script, which has rank 0 too, and no task of srun."""
    is_job = "SLURM_JOB_ID" in environment and "RANK" not in environment and not _is_distributed()
    return is_job and not {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"} & set(environment)


def resolve(split: str | None, rank: int | None, world_size: int | None, stacklevel: int) -> Split:
    """The share that these arguments of a loader mean; without any of them, everything."""
    if split not in (None, "rank"):
        raise InvalidOptionError(
            f"split={split!r} is not known",
            hint='split="rank" shares samples out among ranks, None does not; which rank goes into rank and world_size',
        )
    if split is None and rank is None and world_size is None:
        try:
            found = find()
        except InvalidOptionError:
            # Nobody asked for ranks: what else the environment holds is not this loader's business.
            found = None
        if found is not None and found.world_size > 1 and not is_batch_script():
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
            'split="rank" found neither torch.distributed running nor the environment of torchrun, Slurm or MPI: this '
            "process gets all samples; make the loader after init_process_group, or give rank and world_size",
            stacklevel=stacklevel,
        )
        found = WHOLE
    elif found.world_size > 1 and is_batch_script():
        warnings.warn(
            f"this seems to be the script of a Slurm job, not one of its {found.world_size} tasks, and gets the share "
            "of the first; start it with srun or torchrun, or give rank and world_size",
            stacklevel=stacklevel,
        )
    return Split(
        found.rank if rank is None else rank,
        found.world_size if world_size is None else world_size,
    )

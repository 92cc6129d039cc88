"""A worker process: gets rows, makes batches of them, until its parent hangs up.

It reads no shards and knows no order; what it must know is sent to it once, in a `Setup`.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, parent_process, reduction
from typing import Any

import numpy

from . import draws, failure, parcel
from .recipe import Recipe
from .segment import Outbox, received

# How often it looks whether its parent lives, while there is nothing to do.
_LOOK_S = 1.0


@dataclass(frozen=True)
class Setup:
    """What a worker process is told at its start.

    Attributes:
        recipe: what to do with rows.
        dataset: for `torch.utils.data.get_worker_info()`, as torch gives it.
        worker_init_fn: called with the worker's number before anything else.
        workers: how many worker processes there are.
        seed: the base of the seeds that workers start from, as in torch; each sample has its own beside it.
    """

    recipe: Recipe
    dataset: Any
    worker_init_fn: Callable[[int], None] | None
    workers: int
    seed: int


def main(parent_end: Any, setup: Setup, number: int) -> None:
    """Serves the other end of `parent_end`, a connection."""
    # Ctrl-C is the parent's to answer, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a program does on this signal is for its main process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Came along with a fork: none of it is this process's to tidy up.
    gc.freeze()
    worker = _Worker(parent_end, setup, number)
    try:
        worker.prepare()
        while worker.serve():
            pass
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Worker:
    def __init__(self, parent_end: Any, setup: Setup, number: int) -> None:
        self._connection = parent_end
        self._parent = os.getppid()
        self._setup = setup
        self._number = number
        self._outbox = Outbox()
        self._inbox: Any = None
        self._draws = draws.STRATEGIES["owned"]()
        self._broken: bytes | None = None

    def prepare(self) -> None:
        seed = self._setup.seed + self._number
        if self._setup.recipe.arrays == "torch":
            _prepare_torch(self._setup, self._number, seed)
        random.seed(seed)
        numpy.random.seed(seed & 0xFFFFFFFF)
        if self._setup.worker_init_fn is not None:
            try:
                self._setup.worker_init_fn(self._number)
            except Exception as error:
                self._broken = failure.packed(failure.noted(error, f"in worker_init_fn, of worker {self._number}"))

    def serve(self) -> bool:
        """Answers one request; False when there is nobody to answer any more."""
        parent = parent_process()
        others = [] if parent is None else [parent.sentinel]
        while self._connection not in (found := connection.wait([self._connection, *others], _LOOK_S)):
            # Siblings that began as copies of the parent may hold what its end would close.
            if found or os.getppid() != self._parent:
                return False
        sent, is_new, freed = pickle.loads(self._connection.recv_bytes())
        if is_new:
            self._inbox = received(reduction.recv_handle(self._connection))
        retired = self._outbox.begin(freed)
        try:
            message, segments = self._make(sent)
            kind = "batch"
        except Exception as error:
            kind, message, segments = "error", failure.packed(error), []
        new = [segment for segment in segments if segment.descriptor is not None]
        numbers = [segment.number for segment in segments]
        answer = (kind, message, numbers, [segment.number for segment in new], retired)
        self._connection.send_bytes(pickle.dumps(answer))
        for segment in new:
            reduction.send_handle(self._connection, segment.descriptor, os.getppid())
            segment.sent()
        return True

    def _make(self, sent: parcel.Bundle) -> tuple[bytes, list]:
        if self._broken is not None:
            raise failure.unpacked(self._broken)
        rows = parcel.unbundle(sent, self._inbox)
        recipe = self._setup.recipe
        batch = recipe.make(rows, self._draws, self._outbox.take, lambda: None)
        return parcel.write(batch, self._outbox)


def _prepare_torch(setup: Setup, number: int, seed: int) -> None:
    """What torch's own workers do before their first sample."""
    import torch
    from torch.utils.data._utils import worker

    torch.set_num_threads(1)
    torch.default_generator.manual_seed(seed)
    worker._worker_info = worker.WorkerInfo(id=number, num_workers=setup.workers, seed=seed, dataset=setup.dataset)

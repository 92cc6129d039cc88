"""The worker processes of a loader, seen from their parent: started, given rows, asked for batches, ended.

A worker works for one caller at a time. Nothing here decides whether there are any, or what comes when.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import weakref
from multiprocessing import connection, reduction
from typing import Any

from . import child, failure, parcel
from .child import Setup
from .recipe import Rows
from .segment import Inbox, Shared

# How long the end of a worker is waited for before it is killed.
_ENDING_S = 1.0


class WorkerDied(Exception):
    """A worker process ended by itself."""


class Stopped(Exception):
    """Nobody waits for the batch any more."""


class Worker:
    """One worker process."""

    def __init__(self, context: Any, setup: Setup, number: int) -> None:
        self._connection, theirs = context.Pipe(duplex=True)
        self._inbox = Inbox()
        self._outgoing: Shared | None = None
        self._next = 0
        try:
            self.process = context.Process(
                target=child.main, args=(theirs, setup, number), name=f"brimful-worker-{number}", daemon=True
            )
            self.process.start()
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()

    def make(self, rows: Rows) -> Any:
        """The batch of `rows`.

        Raises:
            WorkerDied: if the process ends meanwhile.
            Exception: whatever a user's function raised.
        """
        try:
            kind, message, numbers = self._ask(rows)
        except (EOFError, OSError) as error:
            raise WorkerDied(self._obituary()) from error
        if kind == "error":
            raise failure.unpacked(message)
        return parcel.read(message, {number: self._inbox.lease(number) for number in numbers})

    def _ask(self, rows: Rows) -> tuple[str, bytes, list[int]]:
        fresh: list[Shared] = []

        def room(nbytes: int) -> Any:
            if self._outgoing is None or self._outgoing.size < nbytes:
                self._outgoing = Shared(self._next, nbytes + nbytes // 8)
                self._next += 1
                fresh.append(self._outgoing)
            return self._outgoing.memory

        bundle = parcel.bundle(rows, room)
        self._connection.send_bytes(pickle.dumps((bundle, bool(fresh), self._inbox.freed())))
        for segment in fresh:
            reduction.send_handle(self._connection, segment.descriptor, self.process.pid)
            segment.sent()
        while not connection.wait([self._connection, self.process.sentinel]):
            pass
        kind, message, numbers, new, retired = pickle.loads(self._connection.recv_bytes())
        self._inbox.retire(retired)
        for number in new:
            self._inbox.map(number, reduction.recv_handle(self._connection))
        return kind, message, numbers

    def _obituary(self) -> str:
        self.process.join(_ENDING_S)
        code = self.process.exitcode
        pid = self.process.pid
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return (
                f"DataLoader worker (pid {pid}) was killed by {name}; the system kills processes when memory runs out"
            )
        return f"DataLoader worker (pid {pid}) exited unexpectedly with code {code}"

    def end(self) -> None:
        """Ends the process at once, whatever it does."""
        if self.process.is_alive():
            self.process.terminate()

    def reap(self) -> None:
        """Waits for the end of the process, and kills it if it does not come."""
        self.process.join(_ENDING_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(_ENDING_S)
        self._connection.close()


class Workers:
    """The worker processes of a loader; they live as long as it does."""

    def __init__(self, context: Any, setup: Setup) -> None:
        self._context = context
        self._setup = setup
        self._all: list[Worker] = []
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._pid = os.getpid()
        self._end: Any = None

    @property
    def is_started(self) -> bool:
        return bool(self._all) and self._pid == os.getpid()

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._all] if self.is_started else []

    def start(self) -> None:
        """Starts them all, or none.

        Raises:
            Exception: what the start method says of a set-up that it cannot send.
        """
        self._pid = os.getpid()
        workers: list[Worker] = []
        try:
            for number in range(self._setup.workers):
                workers.append(Worker(self._context, self._setup, number))
        except BaseException:
            _end_all(os.getpid(), workers)
            raise
        self._all = workers
        self._idle = queue.LifoQueue()
        for worker in reversed(workers):
            self._idle.put(worker)
        self._end = weakref.finalize(self, _end_all, self._pid, workers)

    def make(self, rows: Rows, stopping: threading.Event) -> Any:
        """The batch of `rows`, made by whichever worker is free.

        Raises:
            Stopped: when `stopping` is set before there is one.
        """
        worker = None
        while worker is None:
            if stopping.is_set():
                raise Stopped
            try:
                worker = self._idle.get(timeout=0.1)
            except queue.Empty:
                continue
        try:
            return worker.make(rows)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Ends them; another `start` begins anew."""
        if self._end is not None:
            self._end()
        self._all = []


def _end_all(pid: int, workers: list[Worker]) -> None:
    if pid != os.getpid():
        # In a forked child: they belong to the parent.
        return
    for worker in workers:
        worker.end()
    for worker in workers:
        worker.reap()

"""One epoch through the Python stages: threads take native rows, make batches of them, and hand them on in order.

Each batch in the making, and each that waits for the consumer, holds a ticket; their number bounds what is in flight.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import CancelledError, DataWarning
from .contention import Meter
from .draws import STRATEGIES, GlobalDraw, Undrawn
from .placement import PROCESSES, SOLO_S
from .recipe import Rows, rows_of
from .stages import Stages
from .worker import Stopped, WorkerDied

# How long a native wait goes on before the end of the iteration is looked for.
_LOOK_S = 0.02

# How long the end of an iteration waits for its threads; one in a long step is left to end by itself.
_ENDING_S = 0.5


class Crew:
    """The threads of one iteration and what they share with its consumer."""

    def __init__(self, stages: Stages, native: Any, to_array: Callable[[Any], Any]) -> None:
        self.stages = stages
        self.native = native
        self.pid = os.getpid()
        self.changed = threading.Condition()
        # Results by number: the batch or None, its error or None, the loader's place after it.
        self.ready: dict[int, tuple[Any, BaseException | None, Any]] = {}
        self.end: int | None = None
        self.end_mark: Any = None
        # Threads that are making something, as against waiting.
        self.busy = 0
        self.stopping = threading.Event()
        self._to_array = to_array
        self._tickets = stages.ahead
        self._next = 0
        self._pulling = threading.Lock()
        self._epoch = native.epoch()
        self.number = self._epoch.number
        self._strategies = threading.local()
        self._threads = [
            threading.Thread(target=self._run, name=f"brimful-python-{number}", daemon=True)
            for number in range(stages.count)
        ]
        for thread in self._threads:
            thread.start()

    def give_ticket(self) -> None:
        """The consumer has taken a batch."""
        with self.changed:
            self._tickets += 1
            self.changed.notify_all()

    def close(self) -> None:
        """Ends the threads. Those that are in a long step end after it."""
        if self.pid != os.getpid():
            return
        self.stopping.set()
        with self.changed:
            self.ready.clear()
            self.changed.notify_all()
        deadline = time.monotonic() + _ENDING_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))
        self._epoch = None

    def _run(self) -> None:
        try:
            while True:
                number, batch = self._pull()
                try:
                    outcome = (self._make(rows_of(batch, self._to_array)), None, batch.mark)
                except Stopped:
                    raise
                except BaseException as error:
                    self.stages.failed()
                    outcome = (None, error, None)
                del batch
                self._put(number, outcome)
                del outcome
        except Stopped:
            return

    def _put(self, number: int, outcome: tuple) -> None:
        with self.changed:
            if not self.stopping.is_set():
                self.ready[number] = outcome
                if outcome[1] is not None:
                    # Nothing comes after an error.
                    self.end = min(number + 1, self.end or number + 1)
            self.changed.notify_all()

    def _pull(self) -> tuple[int, Any]:
        """The next native rows and their number."""
        with self.changed:
            while not self.stopping.is_set() and self.end is None and self._tickets == 0:
                self.changed.wait()
            if self.stopping.is_set() or self.end is not None:
                raise Stopped
            self._tickets -= 1
        begin = time.perf_counter()
        with self._pulling:
            batch = self._next_rows()
            number = self._next
            if batch is not None:
                self._next += 1
        if batch is None:
            raise Stopped
        self.stages.waited(time.perf_counter() - begin)
        return number, batch

    def _next_rows(self) -> Any:
        while True:
            epoch = self._epoch
            if self.stopping.is_set() or self.end is not None or epoch is None:
                return None
            try:
                batch = epoch.next_batch(_LOOK_S)
            except TimeoutError:
                continue
            except BaseException as error:
                self._put(self._next, (None, error, None))
                return None
            if batch is None:
                mark = epoch.mark()
                with self.changed:
                    self.end, self.end_mark = self._next, mark
                    self.changed.notify_all()
            return batch

    def _make(self, rows: Rows) -> Any:
        while True:
            self._wait_for_place()
            try:
                if self.stages.placement.where == PROCESSES:
                    return self._make_there(rows)
                return self._make_here(rows)
            except GlobalDraw:
                self.stages.placement.saw_global_draw()
            finally:
                with self.changed:
                    self.busy -= 1
                    self.changed.notify_all()

    def _wait_for_place(self) -> None:
        """Waits until there is someone to make a batch: the consumer starts processes, where no thread is at work."""
        with self.changed:
            while self.stages.needs_workers and not self.stopping.is_set():
                self.changed.notify_all()
                self.changed.wait()
            if self.stopping.is_set():
                raise Stopped
            self.busy += 1

    def _make_there(self, rows: Rows) -> Any:
        workers = self.stages.workers
        if workers is None:
            raise Stopped
        meter = Meter()
        try:
            batch = workers.make(rows, self.stopping)
        except WorkerDied as error:
            raise RuntimeError(str(error)) from error.__cause__
        self.stages.did(len(rows), meter.span())
        return batch

    def _make_here(self, rows: Rows) -> Any:
        placement = self.stages.placement
        is_solo = placement.takes_solo()
        while placement.waits_for_solo and not is_solo:
            if placement.solo_is_over.wait(_LOOK_S) or self.stopping.is_set():
                break
        whole = part = Meter()
        solo_ends = time.perf_counter() + SOLO_S

        def after() -> None:
            nonlocal is_solo, part
            if self.stopping.is_set():
                raise Stopped
            if is_solo and time.perf_counter() >= solo_ends:
                placement.observe_solo(part.span())
                is_solo, part = False, Meter()

        try:
            batch = self.stages.recipe.make(rows, self._strategy(placement.draws), self.stages.recycler.take, after)
        finally:
            if is_solo:
                placement.observe_solo(part.span())
                part = None
        if part is not None:
            placement.observe(part.span())
        self.stages.did(len(rows), whole.span())
        return batch

    def _strategy(self, name: str) -> Undrawn:
        """How this thread draws; made once a thread, since some hold a generator."""
        known = self._strategies.__dict__
        if name not in known:
            known[name] = STRATEGIES[name]()
        return known[name]


class StagedBatches(Iterator[Any]):
    """The batches of one epoch, each as `finish` makes it.

    Args:
        native: a native loader that delivers rows.
        stages: what to do with them.
        to_array: makes arrays of native tensors.
        finish: what is done with a batch in the consumer's thread.
        timeout_s: how long a batch may be waited for, None for ever.
        is_other: called with the epoch's number before the first batch: whether another one is wanted by now.
        in_order: whether batches keep their order; otherwise whichever is ready comes.
    """

    def __init__(
        self,
        native: Any,
        stages: Stages,
        to_array: Callable[[Any], Any],
        finish: Callable[[Any], Any],
        timeout_s: float | None = None,
        is_other: Callable[[int], bool] | None = None,
        in_order: bool = True,
    ) -> None:
        self._native = native
        self._stages = stages
        self._finish = finish
        self._timeout_s = timeout_s
        self._in_order = in_order
        self._length = native.batches
        self._next = 0
        self._marks: dict[int, Any] = {}
        self._confirmed = 0
        # Before native threads are there, where processes begin as copies of this one.
        if stages.needs_workers:
            stages.start_workers()
        self._to_array = to_array
        self._is_other = is_other
        self._begin()

    def _begin(self) -> None:
        self._crew = Crew(self._stages, self._native, self._to_array)
        self._close = weakref.finalize(self, self._crew.close)

    def __next__(self) -> Any:
        crew = self._crew
        if crew.pid != os.getpid():
            raise CancelledError(
                "this iterator's threads ran in the parent process and did not come along with the fork",
                hint="make a new iterator in the child: iter(loader)",
            )
        if self._is_other is not None:
            is_other, self._is_other = self._is_other, None
            if is_other(crew.number):
                self._close()
                self._begin()
                crew = self._crew
        number, (batch, error, mark) = self._take()
        for sentence in self._native.notices():
            warnings.warn(sentence, DataWarning, stacklevel=2)
        if error is not None:
            self._close()
            if isinstance(error, RuntimeError) and isinstance(error.__cause__, (EOFError, OSError)):
                # A worker died: what is left of them is not to be trusted with another epoch.
                self._stages.discard_workers()
            raise error
        self._confirm(number, mark)
        crew.give_ticket()
        return self._finish(batch)

    def _take(self) -> tuple[int, tuple[Any, BaseException | None, Any]]:
        """The next outcome; starts worker processes when they have come to be wanted."""
        crew, stages = self._crew, self._stages
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            with crew.changed:
                number = self._next if self._in_order else min(crew.ready, default=self._next)
                outcome = crew.ready.pop(number, None)
                if outcome is not None:
                    self._next += 1
                    return number, outcome
                if crew.stopping.is_set() or (crew.end is not None and self._next >= crew.end):
                    self._over()
                    raise StopIteration
                if not (stages.needs_workers and (crew.busy == 0 or not stages.is_forking)):
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise RuntimeError(f"DataLoader timed out after {self._timeout_s} seconds")
                    crew.changed.wait(left)
                    continue
            # A fork copies this thread alone: no other one of ours is at work and holds what the copy would wait for.
            stages.start_workers()
            with crew.changed:
                crew.changed.notify_all()

    def _confirm(self, number: int, mark: Any) -> None:
        """Moves the loader's place over what the consumer has got without a gap."""
        self._marks[number] = mark
        while self._confirmed in self._marks:
            self._native.confirm(self._marks.pop(self._confirmed))
            self._confirmed += 1

    def _over(self) -> None:
        if self._crew.end_mark is not None and not self._crew.stopping.is_set():
            for sentence in self._native.notices():
                warnings.warn(sentence, DataWarning, stacklevel=4)
            self._native.confirm(self._crew.end_mark)
        self._close()

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("an epoch over a stream of shards has no length")
        return self._length

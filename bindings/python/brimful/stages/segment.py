"""Memory for whole batches that is used again: anonymous in one process, or shared by two through a descriptor.

A lease is a buffer over a segment; when the last array over it is gone, the segment is free again. It bounds what is
kept, never what is lent: a user may hold as many batches as memory allows.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import mmap
import os
import threading
import weakref
from typing import Any

# Free segments kept; further ones go back to the system.
_KEPT_MAX = 4

# Beside what was asked for: small tensors of the same batch.
_SLACK_BYTES = 64 << 10

_ALIGN = 64


def aligned(nbytes: int) -> int:
    """The next multiple of what every array's place is aligned to."""
    return -(-nbytes // _ALIGN) * _ALIGN


def lease(memory: Any, gone: Any, *arguments: Any) -> Any:
    """A buffer over all of `memory`; `gone(*arguments)` is called when nothing refers to it any more."""
    buffer = (ctypes.c_ubyte * len(memory)).from_buffer(memory)
    # Nothing is to be tidied up at the end of the process.
    weakref.finalize(buffer, gone, *arguments).atexit = False
    return buffer


def mapped(descriptor: int, nbytes: int) -> Any:
    """A buffer over a file of the memory, mapped as long as anything refers to it.

    Python's own maps keep a descriptor each, of which a process may have few.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, nbytes, access, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {nbytes} bytes: {os.strerror(error)}")
    buffer = (ctypes.c_ubyte * nbytes).from_address(address)
    weakref.finalize(buffer, _unmap, libc, address, nbytes).atexit = False
    return buffer


def _unmap(libc: Any, address: int, nbytes: int) -> None:
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))


class Recycler:
    """Memory of this process for the tensors of batches."""

    def __init__(self) -> None:
        self._free: collections.deque[mmap.mmap] = collections.deque()

    def take(self, nbytes: int) -> Any:
        """A buffer of at least `nbytes`, with whatever was in it before."""
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        for _ in range(len(self._free)):
            # Threads may take and give at any time; each call of a deque is one step.
            try:
                memory = self._free.popleft()
            except IndexError:
                break
            if len(memory) == size:
                return lease(memory, self._give, memory)
            # Of another size: the batches have changed, and it is not kept.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(AttributeError, OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return lease(memory, self._give, memory)

    def _give(self, memory: mmap.mmap) -> None:
        if len(self._free) < _KEPT_MAX:
            self._free.append(memory)

    def __reduce__(self):
        return Recycler, ()


class Shared:
    """A segment that two processes map, made here; the other one gets its descriptor."""

    def __init__(self, number: int, nbytes: int) -> None:
        self.number = number
        self.size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        # No name in any folder: nothing is left behind, however the processes end.
        self._descriptor: int | None = os.memfd_create("brimful")
        try:
            os.ftruncate(self._descriptor, self.size)
            self.memory = mapped(self._descriptor, self.size)
        except BaseException:
            self.sent()
            raise

    @property
    def descriptor(self) -> int | None:
        """To be sent once; None afterwards."""
        return self._descriptor

    def sent(self) -> None:
        """Closes the descriptor: both sides have mapped the segment by now, or will by the copy on its way."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def received(descriptor: int) -> Any:
    """A segment of the other process by its descriptor, which is closed."""
    try:
        return mapped(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


class Outbox:
    """Segments of a worker process for the batches that it makes; its parent says which are free again."""

    def __init__(self) -> None:
        self._segments: dict[int, Shared] = {}
        self._free: list[int] = []
        self._next = 0
        self._wanted = 0
        self._current: Shared | None = None
        self._filled = 0
        self._taken = 0
        self._of_batch: list[Shared] = []

    def begin(self, freed: list[int]) -> list[int]:
        """Begins a batch; gives the numbers of segments that are not used any more, to be unmapped."""
        self._free.extend(number for number in freed if number in self._segments)
        # A batch that failed leaves its segments unsent or unused.
        self._free.extend(segment.number for segment in self._of_batch if segment.number in self._segments)
        self._of_batch, self._current, self._filled, self._taken = [], None, 0, 0
        retired = [number for number in self._free if self._segments[number].size < self._wanted]
        retired += [number for number in self._free if number not in retired][_KEPT_MAX:]
        for number in retired:
            self._free.remove(number)
            self._segments.pop(number).sent()
        return retired

    def take(self, nbytes: int) -> Any:
        """A buffer of at least `nbytes` in a segment of this batch."""
        place = self.place(nbytes)
        return memoryview(place[0].memory)[place[1] : place[1] + aligned(nbytes)].cast("B")

    def place(self, nbytes: int) -> tuple[Shared, int]:
        """A segment of this batch and an offset in it where `nbytes` fit."""
        need = aligned(max(nbytes, 1))
        if self._current is None or self._filled + need > self._current.size:
            self._current = self._segment(need)
            self._filled = 0
            self._of_batch.append(self._current)
        offset = self._filled
        self._filled += need
        self._taken += need
        # The next batch is likely to be as large.
        self._wanted = max(self._wanted, self._taken) if self._taken > self._wanted // 2 else self._wanted
        return self._current, offset

    def find(self, address: int, nbytes: int) -> tuple[Shared, int] | None:
        """Which segment of this batch an array lies in, and where."""
        for segment in self._of_batch:
            base = ctypes.addressof(segment.memory)
            if base <= address and address + nbytes <= base + segment.size:
                return segment, address - base
        return None

    def done(self) -> list[Shared]:
        """The segments of the batch, which now belong to the parent until it gives them back."""
        done, self._of_batch, self._current = self._of_batch, [], None
        return done

    def _segment(self, need: int) -> Shared:
        for number in self._free:
            if self._segments[number].size >= need:
                self._free.remove(number)
                return self._segments[number]
        segment = Shared(self._next, max(need, self._wanted) + _SLACK_BYTES)
        self._segments[self._next] = segment
        self._next += 1
        return segment


class Inbox:
    """A worker's segments as its parent sees them."""

    def __init__(self) -> None:
        self._mapped: dict[int, Any] = {}
        self._freed: collections.deque[int] = collections.deque()
        self._lock = threading.Lock()

    def map(self, number: int, descriptor: int) -> None:
        self._mapped[number] = received(descriptor)

    def retire(self, numbers: list[int]) -> None:
        for number in numbers:
            self._mapped.pop(number, None)

    def lease(self, number: int) -> Any:
        """A buffer over the segment; when it is gone the worker is told with its next batch."""
        return lease(self._mapped[number], self._freed.append, number)

    def freed(self) -> list[int]:
        """Segments that became free since the last call."""
        with self._lock:
            return [self._freed.popleft() for _ in range(len(self._freed))]

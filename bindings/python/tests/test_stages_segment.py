"""Memory that batches are made in: lent, given back, shared with another process, never used twice at a time."""

from __future__ import annotations

import gc
import os

import numpy
import pytest

from brimful.stages import parcel
from brimful.stages.recipe import Rows
from brimful.stages.segment import Inbox, Outbox, Recycler, Shared


def over(buffer):
    return numpy.frombuffer(buffer, dtype=numpy.uint8)


def test_lent_memory_is_not_lent_again_before_it_is_back():
    recycler = Recycler()
    first = over(recycler.take(5000))
    address = first.ctypes.data
    view = first[100:200]
    del first
    second = over(recycler.take(5000))
    assert second.ctypes.data != address, "a view is still there"
    del view
    gc.collect()
    third = over(recycler.take(5000))
    assert third.ctypes.data == address
    other = recycler.take(1 << 20)
    assert len(other) >= 1 << 20


def test_free_memory_is_bounded():
    recycler = Recycler()
    held = [recycler.take(5000) for _ in range(20)]
    del held
    gc.collect()
    assert len(recycler._free) <= 4


def test_a_shared_segment_is_the_same_memory_and_keeps_no_descriptor():
    files = len(os.listdir("/proc/self/fd"))
    segment = Shared(0, 10_000)
    inbox = Inbox()
    inbox.map(0, os.dup(segment.descriptor))
    segment.sent()
    assert len(os.listdir("/proc/self/fd")) == files
    over(segment.memory)[17] = 99
    lease = inbox.lease(0)
    assert over(lease)[17] == 99
    assert inbox.freed() == []
    array = over(lease)[10:20]
    del lease
    gc.collect()
    assert (inbox.freed(), array[7]) == ([], 99)
    inbox.retire([0])
    assert array[7] == 99, "a retired segment stays as long as it is used"
    del array
    gc.collect()
    assert (inbox.freed(), inbox.freed()) == ([0], [])


def test_an_outbox_uses_segments_again_once_they_are_free():
    outbox = Outbox()
    assert outbox.begin([]) == []
    first = over(outbox.take(100_000))
    assert outbox.find(first.ctypes.data, 100) is not None
    [segment] = outbox.done()
    outbox.begin([])
    outbox.take(100_000)
    [other] = outbox.done()
    assert other is not segment
    outbox.begin([segment.number])
    outbox.take(90_000)
    assert outbox.done() == [segment]
    # Larger batches retire what is too small for them.
    outbox.begin([other.number])
    outbox.take(5_000_000)
    [large] = outbox.done()
    assert sorted(outbox.begin([segment.number])) == sorted([segment.number, other.number])
    assert outbox.begin([large.number]) == []


def test_a_batch_that_failed_leaves_its_segment_for_the_next():
    outbox = Outbox()
    outbox.begin([])
    outbox.take(100_000)
    outbox.begin([])
    outbox.take(100_000)
    assert len(outbox._segments) == 1


def test_messages_carry_arrays_once_and_everything_else_pickled():
    torch = pytest.importorskip("torch")
    outbox = Outbox()
    outbox.begin([])
    large = torch.arange(50_000, dtype=torch.float32).reshape(100, 500)
    batch = {"t": large, "again": large, "turned": large.T, "n": large.numpy().astype(">i4"), "small": torch.ones(3)}
    batch["scalar"], batch["texts"] = torch.tensor(2.5, dtype=torch.bfloat16), ["a", None]
    message, segments = parcel.write(batch, outbox)
    assert len(message) < 20_000
    assert sum(segment.size for segment in segments) < 4 * large.nbytes + (1 << 20)
    read = parcel.read(message, {segment.number: segment.memory for segment in segments})
    assert torch.equal(read["t"], large)
    assert read["again"].data_ptr() == read["t"].data_ptr()
    assert torch.equal(read["turned"], large.T)
    assert (read["n"].dtype.str, int(read["n"][3, 4])) == (">i4", 1504)
    assert (read["scalar"].item(), read["texts"], read["small"].tolist()) == (2.5, ["a", None], [1, 1, 1])


def test_rows_of_every_form_cross_over():
    memory = {}

    def room(nbytes):
        memory["segment"] = Shared(0, nbytes)
        return memory["segment"].memory

    ragged = [numpy.full((2, n), n, numpy.uint8) for n in range(3)]
    fixed = numpy.arange(24, dtype=numpy.float32).reshape(3, 8)
    rows = Rows([fixed, ragged, ["a", "b", "c"], [1, 2, 3]], ["x", "y", "z"], [7, 8, 9])
    sent = parcel.bundle(rows, room)
    got = parcel.unbundle(sent, memory["segment"].memory)
    assert numpy.array_equal(got.columns[0], fixed)
    assert all(numpy.array_equal(a, b) for a, b in zip(got.columns[1], ragged, strict=True))
    assert (got.columns[2:], got.keys, got.draws) == (rows.columns[2:], rows.keys, rows.draws)
    plain = parcel.bundle(Rows([[1], ["a"]], ["k"], [1]), room)
    assert parcel.unbundle(plain, None).columns == [[1], ["a"]]

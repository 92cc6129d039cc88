"""Whose memory a batch is, and what is left behind: nothing."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy
import pytest

import brimful
from brimful import transforms as T

CROP = T.Compose([T.CenterCrop(64), T.ToTensor()])


@pytest.fixture()
def dataset(pattern):
    return brimful.ShardDataset(pattern, transform=CROP)


def test_every_view_of_a_column_is_the_same_memory(dataset):
    torch = pytest.importorskip("torch")
    images, _ = next(iter(brimful.Loader(dataset, 4, arrays="dlpack")))
    array, tensor = numpy.from_dlpack(images), torch.from_dlpack(images)
    assert array.ctypes.data == tensor.data_ptr()
    assert array.flags.writeable
    array[1, 2, 3, 4] = 7
    tensor[0] = 5
    assert tensor[1, 2, 3, 4] == 7
    assert array[0].min() == 5
    assert images.shape == [4, 3, 64, 64]
    assert images.__dlpack_device__() == (1, 0)


def test_legacy_and_versioned_capsules(dataset):
    images, _ = next(iter(brimful.Loader(dataset, 4, arrays="dlpack")))
    assert '"dltensor"' in repr(images.__dlpack__())
    assert "dltensor_versioned" in repr(images.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        images.__dlpack__(max_version=(1, 0), copy=True)


def test_a_batch_outlives_its_loader(dataset):
    loader = brimful.Loader(dataset, 16)
    batches = iter(loader)
    images, labels = next(batches)
    before = images.copy()
    for _ in batches:
        pass
    del loader, batches
    gc.collect()
    numpy.testing.assert_array_equal(images, before)
    assert labels.tolist() == list(range(16))


def test_buffers_go_back_to_the_pool_and_held_ones_do_not(dataset):
    loader = brimful.Loader(dataset, 4, num_workers=1, prefetch=1)
    held = [images for images, _ in loader]
    assert len({images.ctypes.data for images in held}) == len(held)
    del held
    addresses = {images.ctypes.data for _ in range(3) for images, _ in loader}
    assert len(addresses) <= 6


def test_leaving_early_200_times_leaves_nothing_behind(dataset):
    def usage():
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), resident_bytes()

    def once():
        for _ in brimful.Loader(dataset, 4, num_workers=2, shuffle=True):
            break

    for _ in range(20):
        once()
    threads, files, memory = usage()
    for _ in range(200):
        once()
    after = usage()
    assert after[0] <= threads
    assert after[1] <= files
    assert after[2] - memory < 32 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_other_threads_run_while_a_batch_is_awaited(dataset):
    ticks = 0
    stop = threading.Event()

    def count():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.0005)

    counter = threading.Thread(target=count)
    counter.start()
    for _ in range(3):
        list(brimful.Loader(dataset, 48, num_workers=1))
    stop.set()
    counter.join()
    assert ticks > 5


def test_one_iterator_may_be_shared_by_threads(dataset):
    batches = iter(brimful.Loader(dataset, 2))
    lock, seen = threading.Lock(), []

    def take():
        for _, labels in batches:
            with lock:
                seen.extend(labels.tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(48))

"""Forked and spawned children, torch's workers, signals, and interpreters without torch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import brimful
from brimful import transforms as T
from conftest import write_shard

CROP = T.Compose([T.CenterCrop(16), T.ToTensor()])


def labels_of(loader):
    return [label for _, labels in loader for label in labels.tolist()]


def in_fork(work):
    """What `work` returns in a forked child, or raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException as error:
            answer = f"raised {type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    watchdog = threading.Timer(20, os.kill, (child, signal.SIGKILL))
    watchdog.start()
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    watchdog.cancel()
    assert status == 0, "the child hung or died"
    return answer


def test_what_the_parent_made_works_in_a_forked_child(pattern):
    dataset = brimful.ShardDataset(pattern, transform=CROP)
    loader = brimful.Loader(dataset, 16)
    list(loader)
    loader.set_epoch(0)
    assert in_fork(lambda: labels_of(loader)) == repr(list(range(48)))
    assert in_fork(lambda: dataset[5][1]) == "5"
    assert labels_of(loader) == list(range(48))


def test_an_iterator_of_the_parent_raises_in_the_child(pattern):
    loader = brimful.Loader(brimful.ShardDataset(pattern, transform=CROP), 4)
    batches = iter(loader)
    next(batches)
    answer = in_fork(lambda: next(batches))
    assert answer.startswith("raised CancelledError")
    assert "iter(loader)" in answer
    assert labels_of(batches) == list(range(4, 48))


def _spawned(loader, queue):
    queue.put(labels_of(loader))


def test_a_spawned_child_gets_patterns_and_options(pattern):
    loader = brimful.Loader(brimful.ShardDataset(pattern, transform=CROP), 16, shuffle=True, seed=2)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_spawned, args=(loader, queue))
    child.start()
    got = queue.get(timeout=60)
    child.join()
    assert got == labels_of(loader)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_torchs_workers_read_the_map_style_data_set(pattern, context):
    torch = pytest.importorskip("torch")
    dataset = brimful.ShardDataset(pattern, transform=CROP)
    dataset[0]
    loader = torch.utils.data.DataLoader(dataset, 8, num_workers=2, multiprocessing_context=context)
    assert labels_of(loader) == list(range(48))


class Nested:
    """A data set that uses a loader of its own inside a worker."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.loader.stats()["decode_threads"], sum(labels_of(self.loader))


def test_inside_a_worker_of_torch_the_engine_takes_one_thread(pattern):
    torch = pytest.importorskip("torch")
    nested = brimful.Loader(brimful.ShardDataset(pattern, transform=CROP), 16, num_workers=4)
    list(nested)
    loader = torch.utils.data.DataLoader(Nested(nested), num_workers=2, multiprocessing_context="fork")
    assert [(int(threads), int(total)) for threads, total in loader] == [(1, 48 * 47 // 2)] * 2


def run_python(code: str, **arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, **arguments
    )


def check_ctrl_c(code: str) -> None:
    """Ctrl-C while `code` waits after it has said so: it ends within a second, as an exception."""
    # A job in the background of a shell is born with Ctrl-C ignored, and so are its children.
    start = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nimport brimful\n"
    child = subprocess.Popen(
        [sys.executable, "-c", start + textwrap.dedent(code) + "\nprint('never', flush=True)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        started = time.monotonic()
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=10)
    finally:
        child.kill()
    assert output == ""
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - started < 1


def test_ctrl_c_ends_a_wait_within_a_second(large):
    """One batch of many large photos: it takes far longer than anyone here will wait."""
    check_ctrl_c(f"""
        from brimful import transforms as T
        dataset = brimful.ShardDataset([{large!r}] * 1000, fields="jpg", transform=T.Resize((16, 16)))
        batches = iter(brimful.Loader(dataset, 1000, num_workers=1))
        print("waiting", flush=True)
        next(batches)
    """)


def test_ctrl_c_ends_a_wait_for_a_pipe_that_nobody_writes_to(tmp_path):
    os.mkfifo(tmp_path / "a.tar")
    check_ctrl_c(f"""
        dataset = brimful.ShardDataset({str(tmp_path / "a.tar")!r}, fields="cls", access="stream")
        batches = iter(brimful.Loader(dataset, 4))
        print("waiting", flush=True)
        next(batches)
    """)


def test_ctrl_c_ends_the_building_of_indexes(tmp_path):
    """Many shards of many samples: together they take far longer than anyone here will wait."""
    rows = [{"__key__": b"%05d" % number, "cls": b"1"} for number in range(5000)]
    shard = write_shard(tmp_path / "a.tar", rows)
    check_ctrl_c(f"""
        print("waiting", flush=True)
        brimful.ShardDataset([{str(shard)!r}] * 4000, fields="cls", index_cache=None)
    """)


def test_a_pipe_is_no_indexed_shard_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "a.tar")
    for access in ("auto", "indexed"):
        with pytest.raises(brimful.UnsupportedError, match="stream"):
            brimful.ShardDataset(tmp_path / "a.tar", access=access)


def test_without_torch_numpy_is_enough(pattern):
    done = run_python(
        f"""
        import sys
        sys.modules["torch"] = None
        import brimful
        from brimful import transforms as T
        dataset = brimful.ShardDataset({pattern!r}, transform=T.Compose([T.CenterCrop(16), T.ToTensor()]))
        image, label = dataset[3]
        print(type(image).__module__, label)
        for images, labels in brimful.Loader(dataset, 16):
            print(images.shape, images.dtype, labels.dtype)
        try:
            brimful.DataLoader
        except ImportError as error:
            print(error)
        """
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "numpy 3"
    assert lines[1:4] == ["(16, 3, 16, 16) float32 int64"] * 3
    assert "pip install torch" in lines[4]
    assert "brimful.Loader" in lines[4]


def test_importing_brimful_imports_no_torch():
    done = run_python("import brimful, sys; print('torch' in sys.modules, 'torchvision' in sys.modules)")
    assert done.stdout == "False False\n", done.stderr

"""Worker processes for Python steps: when they are taken, what they are told, how they end."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

import brimful
from brimful.stages.contention import Span
from brimful.stages.draws import Source
from brimful.stages.placement import Placement, Rules
from conftest import SAMPLES, write_shard
from test_processes import in_fork

torch = pytest.importorskip("torch")
V1 = pytest.importorskip("torchvision.transforms")


def grey(image):
    return image.convert("L").convert("RGB")


def holding(image):
    """Holds the interpreter's lock for a while, however fast the machine is."""
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return image


def sleeping(image):
    time.sleep(0.01)
    return image


def dying(image):
    os.kill(os.getpid(), signal.SIGKILL)


class OddError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")
        self.first = first


def failing(label):
    if label == 5:
        raise OddError("five", "is odd")
    return label


def stopping(label):
    raise StopIteration


def who(samples):
    info = torch.utils.data.get_worker_info()
    return info.id, info.num_workers, len(info.dataset), info.seed, os.environ.get("BRIMFUL_TEST"), os.getpid()


def mark(number):
    os.environ["BRIMFUL_TEST"] = f"worker {number}"


def unready(number):
    raise ValueError(f"worker {number} has no mood")


def loader(pattern, *steps, batch_size=6, target_transform=None, **options):
    transform = V1.Compose([V1.CenterCrop(16), *steps, V1.ToTensor()])
    dataset = brimful.ShardDataset(pattern, transform=transform, target_transform=target_transform)
    return brimful.DataLoader(dataset, batch_size, **{"num_workers": 2, **options})


def labels_of(batches):
    return [label for _, labels in batches for label in labels.tolist()]


def test_steps_that_hold_the_interpreters_lock_get_processes(pattern):
    rows = loader(pattern, holding)
    assert labels_of(rows) == labels_of(rows) == list(range(SAMPLES))
    stats = rows.stats()["python"]
    assert (stats["where"], len(stats["pids"])) == ("processes", 2), stats
    assert stats["waits_beside_others_share"] > 0.2
    assert "wait for the interpreter's lock" in str(rows.explain())


def test_steps_that_let_others_work_stay_in_threads(pattern):
    rows = loader(pattern, sleeping)
    assert labels_of(rows) == list(range(SAMPLES))
    stats = rows.stats()["python"]
    assert (stats["where"], stats["pids"]) == ("threads", []), stats
    assert stats["waits_alone_share"] > 0.3
    assert stats["measurements"] > 0


def rules(**changes):
    known = {"wish": "auto", "num_workers": 2, "source": Source.NONE, "drawers": (), "has_init": False}
    return Rules(**{**known, "is_nested": False, **changes})


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, "threads"),
        ({"wish": "processes", "num_workers": 0}, "processes"),
        ({"wish": "threads", "source": Source.GLOBAL}, "threads"),
        ({"num_workers": 0, "source": Source.GLOBAL}, "threads"),
        ({"is_nested": True, "source": Source.GLOBAL}, "threads"),
        ({"source": Source.GLOBAL}, "processes"),
        ({"has_init": True}, "processes"),
    ],
)
def test_rules_come_before_measurements(changes, where):
    assert Placement(rules(**changes)).where == where


def test_an_interpreter_without_a_lock_takes_threads(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    for changes in ({"source": Source.GLOBAL}, {"has_init": True}, {}):
        found = Placement(rules(**changes))
        assert (found.where, found.is_measuring) == ("threads", False)
    assert Placement(rules(source=Source.GLOBAL)).draws == "locked"


def span(blocked, wall_s=0.2):
    return Span(2 * wall_s, wall_s * (1 - blocked), wall_s)


def test_a_decision_takes_several_measurements_and_more_once_it_stands():
    found = Placement(rules())
    assert found.takes_solo()
    assert not found.takes_solo()
    found.observe_solo(span(0.1))
    for share in (0.5, 0.2, 0.5):
        found.observe(span(share))
    assert (found.where, found.is_measuring) == ("threads", True)
    found.observe(span(0.5))
    assert found.where == "processes"
    later = Placement(rules())
    later.observe_solo(None)
    later.observe(span(0.01))
    for share in (0.9, 0.9, 0.9, 0.0, 0.9, 0.9, 0.9):
        later.observe(span(share))
        assert later.where == "threads"
    later.observe(span(0.9))
    assert later.where == "processes"


def test_waiting_for_storage_or_a_processor_is_not_waiting_for_the_lock():
    storage = Placement(rules())
    storage.observe_solo(span(0.8))
    busy = Placement(rules())
    busy.observe_solo(span(0.0))
    for _ in range(20):
        storage.observe(span(0.85))
        busy.observe(Span(1.0, 0.1, 0.88))
    assert (storage.where, busy.where) == ("threads", "threads")


def test_short_measurements_are_added_up():
    found = Placement(rules())
    found.observe_solo(None)
    for _ in range(9):
        found.observe(span(0.9, wall_s=0.01))
    assert found.document()["measurements"] == 0
    found.observe(span(0.9, wall_s=0.02))
    assert found.document()["measurements"] == 1


def test_an_init_function_is_called_in_each_worker_as_torch_does(pattern):
    rows = loader(pattern, worker_init_fn=mark, collate_fn=who, generator=torch.Generator().manual_seed(9))
    found = list(rows)
    assert {row[:3] for row in found} == {(0, 2, SAMPLES), (1, 2, SAMPLES)}
    assert {row[3] for row in found} == {9, 10}
    assert {row[4] for row in found} == {"worker 0", "worker 1"}
    assert sorted({row[5] for row in found}) == sorted(rows.stats()["python"]["pids"])
    assert "BRIMFUL_TEST" not in os.environ
    assert [row[5] in rows.stats()["python"]["pids"] for row in rows] == [True] * 8, "they stay for the next epoch"


def test_a_failing_init_function_is_an_error_of_its_type(pattern):
    with pytest.raises(ValueError, match="has no mood") as caught:
        list(loader(pattern, grey, worker_init_fn=unready))
    assert "in worker_init_fn" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("stages", ["threads", "processes"])
def test_errors_keep_their_type_and_tell_step_and_sample(pattern, stages):
    rows = loader(pattern, grey, target_transform=failing, stages=stages)
    batches = iter(rows)
    with pytest.raises(OddError, match="five is odd") as caught:
        next(batches)
    assert caught.value.__notes__ == ["in failing, of sample 0005"]
    assert caught.value.first == "five"
    assert next(batches, None) is None
    assert rows.stats()["python"]["failures"] >= 1
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(iter(loader(pattern, grey, target_transform=stopping, stages=stages)))
    with pytest.raises(TypeError) as caught:
        next(iter(loader(pattern, grey, collate_fn=sum, stages=stages)))
    assert caught.value.__notes__ == ["in sum, of 6 samples"]


def test_a_killed_worker_is_a_clear_error_and_the_next_epoch_has_others(pattern):
    rows = loader(pattern, grey, stages="processes")
    batches = iter(rows)
    next(batches)
    for pid in rows.stats()["python"]["pids"]:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"worker \(pid \d+\) was killed by SIGKILL"):
        list(batches)
    assert labels_of(rows) == list(range(SAMPLES))
    with pytest.raises(RuntimeError, match="killed by SIGKILL"):
        list(loader(pattern, dying, stages="processes"))


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_other_start_methods_take_what_can_be_sent(pattern, context):
    rows = loader(pattern, grey, stages="processes", multiprocessing_context=context, num_workers=1)
    assert labels_of(rows) == list(range(SAMPLES))
    if context == "spawn":
        return
    local = loader(pattern, lambda image: image, worker_init_fn=print, multiprocessing_context=context)
    assert labels_of(local) == list(range(SAMPLES))
    assert local.stats()["python"]["where"] == "threads"
    assert "cannot be started" in str(local.explain())
    with pytest.raises(brimful.InvalidOptionError, match="lambda"):
        list(loader(pattern, lambda image: image, stages="processes", multiprocessing_context=context))


def test_leaving_early_and_letting_go_leaves_no_process_and_no_file(pattern):
    def usage():
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def once():
        rows = loader(pattern, grey, stages="processes", batch_size=2)
        for _ in rows:
            break
        return rows.stats()["python"]["pids"]

    once()
    before = usage()
    pids = [pid for _ in range(10) for pid in once()]
    after = usage()
    assert len(set(pids)) == 20
    assert not any(os.path.exists(f"/proc/{pid}/fd") and os.listdir(f"/proc/{pid}/fd") for pid in pids)
    assert after[0] <= before[0] + 1
    assert after[1] <= before[1]


LIMITED = """
import resource, sys
import torch
import brimful
from torchvision import transforms as V1
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
transform = V1.Compose([V1.CenterCrop(64), V1.Grayscale(3), V1.ToTensor()])
dataset = brimful.ShardDataset(sys.argv[1], transform=transform, index_cache=None)
rows = brimful.DataLoader(dataset, 2, shuffle=True, num_workers=8, stages="processes")
held = [images for _ in range(2) for images, _ in rows]
print(len(held), len(rows.stats()["python"]["pids"]))
"""


def test_eight_workers_and_many_held_batches_work_under_64_descriptors(pattern):
    done = subprocess.run([sys.executable, "-c", LIMITED, pattern], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("48 8\n", 0), done.stderr


@pytest.mark.parametrize("stages", ["threads", "processes"])
def test_ctrl_c_ends_a_wait_for_python_steps(pattern, stages):
    code = f"""
        import signal, time, torch, brimful
        from torchvision import transforms as V1
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def slow(image):
            time.sleep(30)
        transform = V1.Compose([V1.CenterCrop(8), slow])
        dataset = brimful.ShardDataset({pattern!r}, transform=transform)
        batches = iter(brimful.DataLoader(dataset, 8, num_workers=1, stages={stages!r}))
        print("waiting", flush=True)
        try:
            next(batches)
        except KeyboardInterrupt:
            del batches
            print("interrupted", flush=True)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        started = time.monotonic()
        assert child.stdout.readline() == "interrupted\n"
        # What comes afterwards is mostly torch, which takes its time to go.
        assert time.monotonic() - started < 1
        assert child.wait(timeout=20) == 0
    finally:
        child.kill()


def test_workers_end_with_a_parent_that_is_killed(pattern):
    code = f"""
        import sys, time, torch, brimful
        from torchvision import transforms as V1
        transform = V1.Compose([V1.CenterCrop(8), V1.Grayscale(3), V1.ToTensor()])
        dataset = brimful.ShardDataset({pattern!r}, transform=transform)
        rows = brimful.DataLoader(dataset, 8, num_workers=2, stages="processes")
        next(iter(rows))
        print(*rows.stats()["python"]["pids"], flush=True)
        time.sleep(60)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in child.stdout.readline().split()]
    child.kill()
    child.wait()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_iterator_of_the_parent_raises_in_a_forked_child(pattern):
    rows = loader(pattern, grey, stages="threads")
    batches = iter(rows)
    next(batches)
    assert in_fork(lambda: next(batches)).startswith("raised CancelledError")
    assert labels_of(batches) == list(range(6, SAMPLES))


def test_a_large_and_strange_batch_comes_back_whole(pattern):
    rows = loader(pattern, grey, stages="processes", collate_fn=strange, num_workers=1)
    for _ in range(2):
        for batch in rows:
            images, same, halves, arrays, words, empty = batch
            assert torch.equal(images, same)
            assert (halves.dtype, halves.shape) == (torch.bfloat16, images.shape)
            assert numpy.array_equal(arrays["x"], images.numpy())
            assert (words.tolist(), empty.shape) == (["a", "b"], (0, 3))


def strange(samples):
    images = torch.stack([image for image, _ in samples])
    arrays = {"x": images.numpy().copy()}
    return images, images, images.bfloat16(), arrays, numpy.array(["a", "b"], dtype=object), torch.empty(0, 3)


def test_torch_workers_that_use_a_loader_with_python_steps_take_threads(pattern):
    class Nested(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            rows = loader(pattern, V1.RandomChoice([V1.Grayscale(3)]))
            labels = labels_of(rows)
            return rows.stats()["python"]["where"] == "threads", sum(labels)

    found = list(torch.utils.data.DataLoader(Nested(), num_workers=1, multiprocessing_context="fork"))
    assert [(bool(is_threads), int(total)) for is_threads, total in found] == [(True, 48 * 47 // 2)] * 2


def test_generators_of_the_program_go_on_in_spite_of_workers(pattern):
    random.seed(1)
    expected = random.random()
    random.seed(1)
    list(loader(pattern, grey, stages="processes"))
    assert random.random() == expected


def test_one_bad_row_among_many_names_its_shard_too(tmp_path, samples):
    shard = write_shard(tmp_path / "a.tar", [samples[0], {**samples[1], "jpg": b""}])
    with pytest.raises(brimful.DecodeError, match="a.tar"):
        list(loader(str(shard), grey, stages="processes"))


def torch_threads(samples):
    return torch.get_num_threads()


@pytest.mark.parametrize("stages", ["threads", "processes"])
def test_torch_computes_on_one_thread_in_processes_and_on_the_programs_in_threads(pattern, stages):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = set(loader(pattern, collate_fn=torch_threads, stages=stages))
    finally:
        torch.set_num_threads(before)
    assert found == {3 if stages == "threads" else 1}


def test_one_thread_works_alone_at_first_and_others_begin_within_its_first_batch(pattern, monkeypatch):
    monkeypatch.setattr("brimful.stages.batches.SOLO_S", 0.1)
    begun = []

    def noting(image):
        begun.append((time.perf_counter(), threading.get_ident()))
        time.sleep(0.02)
        return image

    list(loader(pattern, noting, batch_size=24))
    first, alone = begun[0]
    by_others = [moment - first for moment, thread in begun if thread != alone]
    assert len(by_others) == 24
    before = [moment for moment, thread in begun if thread == alone and moment - first < min(by_others)]
    assert min(by_others) > 0.09 and len(before) < 24

"""The adaptive batch size on a real GPU: its clock, its memory, its readings, and a whole search."""

from __future__ import annotations

import os
import time

import pytest

import brimful
from brimful import AutoBatch, DataLoader
from brimful.step_clock import LAG, CudaClock, Probe

torch = pytest.importorskip("torch", reason="torch cannot be imported")
if not torch.cuda.is_available():
    if os.environ.get("REQUIRE_GPU"):
        pytest.fail("no GPU that torch can use", pytrace=False)
    pytest.skip("no GPU that torch can use", allow_module_level=True)


def test_a_step_is_timed_on_the_stream_though_the_program_runs_ahead():
    clock, size = CudaClock("cuda:0"), 4096
    one = torch.randn(size, size, device="cuda")
    for _ in range(12):
        clock.end_step()
        clock.begin_step(8)
        for _ in range(4):
            torch.mm(one, one)
    steps = clock.take()
    assert len(steps) == 11 - LAG and all(step.rows == 8 for step in steps)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(4):
        torch.mm(one, one)
    torch.cuda.synchronize()
    alone = time.perf_counter() - begin
    assert sorted(step.elapsed_s for step in steps)[5] == pytest.approx(alone, rel=0.5)


def test_memory_is_what_the_peak_of_this_program_and_all_others_use():
    clock = CudaClock("cuda:0")
    held = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    used, limit = clock.memory()
    assert 256 << 20 <= used < limit <= torch.cuda.mem_get_info()[1]
    assert clock.memory() is None, "the peak has not risen since"
    del held


def test_the_gpu_is_found_by_its_uuid_and_read():
    probe = Probe("cuda:0")
    deadline = time.monotonic() + 10
    reading = {}
    while not reading and time.monotonic() < deadline:
        reading = probe.reading()
    assert reading or "rates alone decide" in probe.told, probe.told
    if reading:
        assert reading["memory_total_bytes"] >= torch.cuda.mem_get_info()[0]


def test_a_search_settles_on_a_real_device(pattern):
    steps = [brimful.transforms.RandomResizedCrop(64), brimful.transforms.ToTensor()]
    transform = brimful.transforms.Compose(steps)
    dataset = brimful.ShardDataset(pattern, fields=("jpg", "cls"), transform=transform)
    loader = DataLoader(dataset, AutoBatch(min=8, max=32), shuffle=True, device="cuda", decoder="cpu")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(300):
        for images, labels in loader:
            with loader.oom_guard(optimizer):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels % 10).backward()
                optimizer.step()
        if loader.tuning["phase"] == "settled":
            break
    assert loader.tuning["phase"] == "settled", loader.tuning

"""The stress test, small and on the CPU: all three stages run, faults that are planted are named first."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import brimful
from brimful import _native, transforms
from brimful.__main__ import main
from brimful.tune import health, run, run_model, scan
from brimful.tune.subject import make_model, resized

CPU = torch.device("cpu")


def tiny() -> torch.nn.Module:
    """A classifier of images."""
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 10))


def loader_of(pattern: str, threads: int = 1) -> brimful.DataLoader:
    steps = [transforms.RandomResizedCrop(32), transforms.ToTensor()]
    dataset = brimful.ShardDataset(pattern, fields=("jpg", "cls"), transform=transforms.Compose(steps))
    return brimful.DataLoader(dataset, 8, shuffle=True, num_workers=threads)


@pytest.fixture(scope="module")
def outcome(request, tmp_path_factory):
    pattern = request.getfixturevalue("pattern")
    return run_model("test_tune:tiny", loader_of(pattern), device="cpu", budget_s=3.0, tries=["channels_last"])


def test_the_three_stages_end_in_a_recommendation(outcome):
    assert outcome["recommended"]["batch_size"] >= 16 and outcome["recommended"]["images_per_s"] > 0
    assert [row["batch_size"] for row in outcome["curve"]] == [16 << n for n in range(len(outcome["curve"]))]
    assert set(outcome["parts"]) == {"copy", "forward", "backward", "optimizer"}
    assert outcome["data_path"]["storage_per_s"] > outcome["data_path"]["loader_per_s"] > 0
    assert outcome["data_path"]["torch_per_s"] > 0
    assert "need" in outcome["health"]["note"], "what needs a GPU is told"
    assert "gain" in outcome["tried"]["channels_last"]
    assert outcome["seconds"] < 60


def test_a_model_that_outruns_its_loader_is_told_so(outcome):
    kinds = [finding["kind"] for finding in outcome["findings"]]
    # One thread decodes; whether processors are idle beside it is the machine's business.
    assert kinds[0] in ("decode", "cpu_saturated") and outcome["bottleneck"] == kinds[0]
    assert outcome["findings"][0]["gain"] > 0.03


def test_the_outcome_is_text_json_and_a_page(outcome):
    again = json.loads(json.dumps(outcome))
    assert {"version", "machine", "recommended", "bottleneck", "findings", "curve"} <= set(again)
    text = str(outcome)
    assert f"Take batches of {outcome['recommended']['batch_size']}" in text and "channels_last" in text
    html = outcome.html()
    assert (
        html.startswith("<!doctype html>") and "<svg" in html and "http://" not in html.replace("http://www.w3.org", "")
    )


def test_a_step_function_is_tested_as_it_is(pattern):
    seen = []

    def step(batch):
        seen.append(len(batch[0]))
        time.sleep(0.002 + 1e-5 * len(batch[0]))

    found = run(step, loader_of(pattern), budget_s=2.0)
    assert found["parts"] is None and found["model"] == "the step function"
    assert max(seen) > 16 and found["recommended"]["batch_size"] in range(16, max(seen) + 1)


def test_a_step_that_raises_and_one_that_never_fits_end_with_their_error(pattern):
    def broken(batch):
        raise ZeroDivisionError("on purpose")

    def too_large(batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run(broken, loader_of(pattern), budget_s=1.0)
    with pytest.raises(brimful.LimitError, match="do not fit"):
        run(too_large, loader_of(pattern), budget_s=1.0)


class Fake:
    """A device whose step takes 2 ms and 10 us a row, and that has memory for 300 rows."""

    device = CPU
    has_nonfinite = False

    def step(self, batch):
        rows = len(batch)
        if rows > 300:
            raise torch.OutOfMemoryError("CUDA out of memory")
        end = time.perf_counter() + 0.002 + 1e-5 * rows
        while time.perf_counter() < end:
            pass


def test_the_scan_ends_where_memory_does():
    probe = scan.Probe(CPU, _native.GpuSampler.replay([json.dumps({"sm_active": 0.5})], rate_hz=10.0))
    rows = scan.curve(Fake(), torch.zeros(16, 1), probe, 600.0, each_s=0.01)
    assert [row["batch_size"] for row in rows] == [16, 32, 64, 128, 256, 512]
    assert rows[-1] == {"batch_size": 512, "out_of_memory": True}
    assert all("step_s" in row for row in rows[:-1])


def test_the_search_over_a_curve_follows_the_rules_of_the_adaptive_batch():
    sizes = [16 << n for n in range(7)]
    rows = [{"batch_size": n, "step_s": 0.002 + 1e-4 * n, "per_s": n / (0.002 + 1e-4 * n)} for n in sizes]
    size, limit = scan.search(rows, 0.95, 0.1)
    assert 200 <= size <= 350 and limit == "compute"


def test_links_nodes_and_versions_are_read_through_any_root(tmp_path):
    folder = tmp_path / "sys/bus/pci/devices/0000:0f:00.0"
    folder.mkdir(parents=True)
    for name, text in [
        ("current_link_width", "8"),
        ("max_link_width", "16"),
        ("current_link_speed", "16.0 GT/s PCIe"),
        ("max_link_speed", "32.0 GT/s PCIe"),
    ]:
        (folder / name).write_text(text + "\n")
    assert health.link("0000:0f:00.0", tmp_path) == {
        "pcie_width": 8,
        "pcie_generation": 4,
        "pcie_width_max": 16,
        "pcie_generation_max": 5,
    }
    assert health.link("0000:00:00.0", tmp_path) == {} and health.link(None) == {}
    assert health.closed_nodes(tmp_path) == [] and health.version_conflicts(tmp_path) == []
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX Kernel Module  550.54.15  Tue\n")
    conflicts = health.version_conflicts(tmp_path)
    assert len(conflicts) == (0 if torch.cuda.is_available() else 1) and all("550.54.15" in text for text in conflicts)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every node")
def test_nodes_that_cannot_be_opened_are_named(tmp_path):
    (tmp_path / "dev").mkdir()
    node = tmp_path / "dev/nvidia0"
    node.touch(mode=0)
    assert health.closed_nodes(tmp_path) == [str(node)]


@pytest.mark.parametrize(
    ("name", "word"),
    [("resnet50", "names no model"), ("nowhere:f", "cannot be imported"), ("test_tune:nothing", "no function")],
)
def test_models_that_are_not_there_are_told(name, word):
    with pytest.raises(brimful.InvalidOptionError, match=word):
        make_model(name)


def test_batches_are_made_of_any_size():
    batch = [torch.arange(6).reshape(3, 2), ["a", "b", "c"]]
    larger, smaller = resized(batch, 7), resized(batch, 2)
    assert larger[0][:, 0].tolist() == [0, 2, 4, 0, 2, 4, 0] and larger[1] == ["a", "b", "c", "a", "b", "c", "a"]
    assert len(smaller[0]) == 2 and smaller[1] == ["a", "b"]


def test_the_command_writes_its_document(pattern, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    out, html = tmp_path / "tune.json", tmp_path / "tune.html"
    argv = ["tune", pattern, "--model", "test_tune:tiny", "--device", "cpu", "--budget", "1", "--image-size", "32"]
    argv += [
        "--threads",
        "1",
        "--batch-size",
        "8",
        "--images",
        "jpg",
        "--live",
        "--json",
        "--out",
        str(out),
        "--html",
        str(html),
    ]
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())
    assert html.read_text().startswith("<!doctype html>")
    check_demand(Path(pattern).parent, json.loads(out.read_text()))
    assert main(["tune", str(tmp_path / "nothing.tar"), "--device", "cpu"]) == 2
    assert "nothing.tar" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tune", pattern, "--try", "magic"])


def check_demand(shards: Path, document: dict) -> None:
    """What the model takes is the first demand of the next bench of a storage."""
    command = [sys.executable, "-m", "brimful", "bench", "storage", "--json", "--no-profile", "--methods=pread"]
    command += ["--patterns=members", "--cache=cold", "--threads=1", "--runs=1", "--duration=0.05", str(shards)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    job = told["feeds"]["jobs"][0]
    assert job["samples_per_s"] == pytest.approx(document["device_per_s"])
    assert (job["job"], job["gpu"]) == (document["model"], document["health"].get("gpu", "cpu"))


RANKS = """
import json, os, sys, time

import torch
import torch.distributed as dist

import brimful
from brimful.tune import allreduce
from brimful.tune.subject import ModelSubject

torch.set_num_threads(1)
child = os.fork()
os.environ["RANK"] = "1" if child == 0 else "0"
dist.init_process_group("gloo")
make = lambda: ModelSubject(
    lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10)),
    torch.device("cpu"),
)
wrapped = allreduce._wrapped


def slow(_, bucket):
    # A network that takes a tenth of a second for anything.
    time.sleep(0.1)
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


allreduce._wrapped = lambda subject, hook=None, **options: wrapped(subject, hook or slow, **options)
batch = [torch.zeros(4, 3, 16, 16), torch.zeros(4, dtype=torch.int64)]
found = allreduce.measure(make, batch, [4, 8])
if child:
    print(json.dumps(found), flush=True)
dist.destroy_process_group()
if child:
    os.waitpid(child, 0)
os._exit(0)
"""


def test_a_slow_all_reduce_between_processes_is_found():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    paths = [str(Path(brimful.__file__).parents[1]), *sys.path]
    environment = {**os.environ, **names, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", RANKS], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["world_size"] == 2 and [row["batch_size"] for row in found["sizes"]] == [4, 8]
    last = found["sizes"][-1]
    assert last["exposed_s"] > 0.05, found
    assert {row["change"].split("=")[0] for row in found["tried"]} == set(allreduce_changes())
    assert all(row["caveat"] for row in found["tried"])
    readings = {"exposed_allreduce_s": last["exposed_s"], "step_s": last["step_s"], "world_size": 2}
    assert json.loads(_native.findings(json.dumps(readings)))[0]["kind"] == "allreduce"


def allreduce_changes() -> list[str]:
    from brimful.tune import allreduce

    return list(allreduce.CAVEATS)

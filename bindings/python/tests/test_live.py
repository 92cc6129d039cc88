"""Loaders that are shown while they run, and what the program that shows them makes of it."""

from __future__ import annotations

import json
import os

import pytest

import brimful
from brimful import _native, live
from brimful.__main__ import main


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def loader_of(pattern):
    return brimful.DataLoader(brimful.ShardDataset(pattern, fields="cls"), 8, num_workers=1)


def test_a_loader_is_shown_while_the_block_runs(pattern, capsys):
    loader = loader_of(pattern)
    readings = _native.GpuSampler.replay([json.dumps({"sm_active": 0.91, "gpu_busy": 1.0})], rate_hz=10.0)
    with live.Live(loader, name="train.py", sampler=readings) as shown:
        list(loader)
        shown.write()
        (document,) = live.running()
        # The threads may have begun the next epoch.
        assert document["pid"] == os.getpid() and document["samples"] >= 48
        assert main(["top", "--once"]) == 0
        line = capsys.readouterr().out.splitlines()[1]
        assert "train.py" in line and str(os.getpid()) in line
        assert main(["top", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["loaders"][0]["name"] == "train.py"
    assert live.running() == []
    assert "no loader is shown" in live.table([])


def test_a_document_becomes_a_line():
    document = {"pid": 7, "name": "train.py", "samples_per_s": 4321.4, "wait_share": 0.02, "bottleneck": "consumer"}
    document |= {"stages": {"decode": 0.9, "wait": 0.02}, "gpu": {"sm_active": 0.9, "gpu_busy": 1.0}}
    document["tuning"] = {"batch_size": 256, "phase": "settled", "limit": "compute"}
    line = live.table([document]).splitlines()[1]
    for word in ("4,321", "256 (settled)", "2%", "consumer", "90%", "100%", "decode 90%"):
        assert word in line, line


def test_what_ended_processes_left_behind_is_removed(runtime):
    folder = live.folder()
    folder.mkdir()
    dead = folder / "1.json"
    dead.write_text(json.dumps({"pid": 2**30}))
    (folder / "2.json").write_text("rubbish")
    assert live.running(now=dead.stat().st_mtime + 1) != []
    assert live.running(now=dead.stat().st_mtime + 60) == [] and not dead.exists()

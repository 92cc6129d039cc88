"""The console script: the demo in Python, everything else native."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from brimful import demo
from brimful.__main__ import main


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "brimful", *arguments], capture_output=True, text=True, timeout=120)


def test_the_demo_makes_its_own_data(tmp_path, capsys):
    small = ["--dir", str(tmp_path), "--samples", "24", "--batch-size", "8", "--image-size", "32"]
    assert main(["demo", *small, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [epoch["images"] for epoch in report["epochs"]] == [24, 24]
    assert report["images_per_s"] > 0
    assert report["time_to_first_batch_s"] > 0
    assert set(report["stages"]) == {"read", "decode", "transform", "batch", "copy", "wait"}
    assert {"version", "machine", "bottleneck"} <= set(report)


def test_the_demo_loads_shards_of_ones_own_and_writes_files(pattern, tmp_path, capsys):
    out = tmp_path / "report.txt"
    assert main(["demo", "--shards", pattern, "--image-size", "32", "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    text = out.read_text()
    assert "images/s" in text
    assert "bottleneck" in text
    assert main(["demo", "--shards", str(tmp_path / "none-*.tar")]) == 2
    assert "error: " in capsys.readouterr().err


def test_shards_of_the_demo_are_ordinary_shards(tmp_path):
    import brimful

    pattern = demo.make_photos(tmp_path / "made", 10, seed=1)
    dataset = brimful.ShardDataset(pattern, fields=("jpg", "cls"))
    assert len(dataset) == 10
    assert all(0 <= label < 1000 for _, label in dataset)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "made").iterdir())
    assert demo.make_photos(tmp_path / "made", 10, seed=1) == pattern
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "made").iterdir())


def test_other_commands_run_natively():
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "brimful")
    assert run("nonsense").returncode == 2
    with pytest.raises(SystemExit):
        demo.main(["--samples", "0"])

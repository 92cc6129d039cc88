"""The console script: the demo in Python, everything else native."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import brimful
from brimful import demo
from brimful.__main__ import main
from conftest import sample, write_shard


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "brimful", *arguments], capture_output=True, text=True, timeout=120)


def test_the_demo_makes_its_own_data(tmp_path, capsys):
    arguments = ["demo", "--samples", "24", "--batch-size", "8", "--dir", str(tmp_path / "data")]
    assert main([*arguments, "--image-size", "32", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["shards"], report["batch_size"]) == (48, 4, 8)
    assert report["images_per_s"] > 0
    assert report["time_to_first_batch_s"] > 0
    assert set(report["stages"]) == {"read", "decode", "transform", "batch", "copy", "wait"}
    assert {"version", "machine", "bottleneck"} <= set(report)
    assert len(list(brimful.ShardDataset(tmp_path / "data", fields="cls"))) == 24


def test_the_demo_loads_shards_of_ones_own_and_writes_files(pattern, tmp_path, capsys):
    out = tmp_path / "report.json"
    assert main(["demo", "--shards", pattern, "--out", str(out)]) == 0
    assert json.loads(out.read_text())["images"] == 96
    text = capsys.readouterr().out
    assert "images/s" in text
    assert "bottleneck" in text
    assert main(["demo", "--shards", str(tmp_path / "none-*.tar")]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_document_replaces_files_and_nothing_else(pattern, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("report.json")
    assert main(["demo", "--shards", pattern, "--image-size", "32", "--out", str(link)]) == 0
    assert link.is_symlink()
    assert json.loads((tmp_path / "report.json").read_text())["images"] == 96
    assert main(["demo", "--shards", pattern, "--image-size", "32", "--out", "/dev/full"]) == 2
    with pytest.raises(SystemExit):
        main(["demo", "--out", "-"])


@pytest.mark.parametrize("rows", [[], [{"__key__": b"a", "cls": b"1"}]])
def test_shards_without_a_single_image_are_a_failure(tmp_path, capsys, rows):
    shard = write_shard(tmp_path / "a.tar", rows)
    assert main(["demo", "--shards", str(shard)]) == 2
    assert "error: " in capsys.readouterr().err


def test_bad_images_are_left_out_and_told(tmp_path, capsys):
    rows = [sample(0), {"__key__": b"worse", "jpg": b"no image"}]
    shard = write_shard(tmp_path / "a.tar", rows)
    assert main(["demo", "--shards", str(shard), "--image-size", "32"]) == 1
    assert "worse" in capsys.readouterr().err


def test_other_commands_run_natively():
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "brimful")
    assert run("nonsense").returncode == 2
    with pytest.raises(SystemExit):
        demo.main(["--samples", "0"])

"""Programs of others that read shards through webdataset, unmodified on brimful: each where it is at hand.

TIMM_TRAIN names timm's train.py, which is in its repository and not in its package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


def run(name: str, *arguments: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings" / "python"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_timms_training_script(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    script = os.environ.get("TIMM_TRAIN")
    if script is None:
        pytest.skip("TIMM_TRAIN does not name timm's train.py")
    assert "Best metric" in run("timm_train.py", os.path.abspath(script), folder=tmp_path)


def test_open_clips_data_module(tmp_path):
    pytest.importorskip("open_clip", reason="open_clip is not installed")
    pytest.importorskip("pandas", reason="pandas, which open_clip's data module imports, is not installed")
    output = run("open_clip_data.py", folder=tmp_path)
    for epoch in ("training, epoch 1", "validation, epoch 1"):
        assert f"{epoch}: 8 batches of (8, 3, 32, 32)" in output

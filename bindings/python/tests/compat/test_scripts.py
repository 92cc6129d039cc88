"""Training scripts of others, unmodified on brimful: each where it is at hand.

TORCHVISION_TRAIN names torchvision's references/classification/train.py, and TIMM_TRAIN timm's train.py: both are in
repositories and in no package.
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


def named(variable: str, what: str) -> str:
    if variable not in os.environ:
        pytest.skip(f"{variable} does not name {what}")
    return os.path.abspath(os.environ[variable])


@pytest.mark.parametrize("augment", [None, "ra", "ta_wide"])
def test_torchvisions_training_recipe(tmp_path, augment):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    script = named("TORCHVISION_TRAIN", "the train.py of torchvision's references/classification")
    more = [] if augment is None else ["--auto-augment", augment, "--random-erase", "0.1", "--mixup-alpha", "0.2"]
    output = run("torchvision_recipe.py", script, *more, folder=tmp_path)
    assert output.count("engine  native") == 2
    assert "RandomResizedCrop" in output and "Training time" in output


def test_timms_training_script(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    script = named("TIMM_TRAIN", "timm's train.py")
    assert "Best metric" in run("timm_train.py", script, folder=tmp_path)


def test_open_clips_data_module(tmp_path):
    pytest.importorskip("open_clip", reason="open_clip is not installed")
    pytest.importorskip("pandas", reason="pandas, which open_clip's data module imports, is not installed")
    output = run("open_clip_data.py", folder=tmp_path)
    for epoch in ("training, epoch 1", "validation, epoch 1"):
        assert f"{epoch}: 8 batches of (8, 3, 32, 32)" in output

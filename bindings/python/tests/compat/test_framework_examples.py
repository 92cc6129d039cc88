"""The examples that need a framework, each where it is installed."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("lightning_trainer.py", "lightning"),
        ("accelerate_loop.py", "accelerate"),
        ("huggingface_trainer.py", "transformers"),
        ("jax_loop.py", "jax"),
    ],
)
def test_an_example_runs_natively(name, package, monkeypatch, capsys):
    pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert "engine  native" in capsys.readouterr().out

"""The examples run as they stand, on little data of their own; those that need a framework are in compat/."""

from __future__ import annotations

import importlib.util
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def run(name, monkeypatch, *arguments):
    """Runs an example as a program, in this process: importing torch anew takes longer than all of them."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_no_example_hides_a_package():
    """Beside a file numpy.py, every program would import that one."""
    for example in EXAMPLES.glob("*.py"):
        assert importlib.util.find_spec(example.stem) is None, example


def test_numpy_loop(monkeypatch, capsys):
    run("numpy_loop.py", monkeypatch)
    output = capsys.readouterr().out
    assert output.startswith("mean [0.4")
    assert "engine  native" in output


def test_plain_loop_goes_on_where_it_was_stopped(monkeypatch, capsys, tmp_path):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(EXAMPLES)
    tiny = importlib.import_module("tiny")
    monkeypatch.setattr(sys, "argv", ["tiny"])
    shards = tiny.shards()
    save, saved = torch.save, []

    def stop_later(document, path):
        save(document, path)
        saved.append(document["loader"]["position"])
        if len(saved) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", stop_later)
    with pytest.raises(KeyboardInterrupt):
        run("plain_loop.py", monkeypatch, shards, tmp_path / "checkpoint")
    run("plain_loop.py", monkeypatch, shards, tmp_path / "checkpoint")
    output = capsys.readouterr().out
    assert "epoch 0: 96 samples so far" in output
    assert "goes on in epoch 1 after 32 samples" in output
    assert "epoch 1: 64 samples so far" in output
    assert not Path(shards).parent.exists()


# Stands in for Slurm: as many tasks as were asked for, each with the names that Slurm gives it.
SRUN = """#!/usr/bin/env bash
shift
for rank in 0 1; do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 SLURM_STEP_ID=0 "$@" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
"""


def free_job() -> int:
    """The number of a job whose port, as the script derives it, is free."""
    for job in range(os.getpid(), os.getpid() + 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", 20000 + job % 20000)) != 0:
                return job
    raise OSError("no free port")


def test_slurms_script_starts_every_rank(tmp_path):
    pytest.importorskip("torch")
    programs = {
        "srun": SRUN,
        "scontrol": "#!/bin/sh\necho 127.0.0.1\n",
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(EXAMPLES.parent / "bindings" / "python"),
        "SLURM_JOB_ID": str(free_job()),
        "SLURM_JOB_NODELIST": "localhost",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = ["bash", EXAMPLES / "slurm.sbatch"]
    done = subprocess.run(command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split(", loss")[0] for line in done.stdout.splitlines()] == [
        "epoch 0: 96 samples on 2 ranks",
        "epoch 1: 96 samples on 2 ranks",
    ]

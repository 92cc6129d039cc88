"""torch's own tests of its loader against `brimful.DataLoader`, or against torch itself.

They import what they test from `torch.utils.data`; a plugin of pytest puts brimful's class there first.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from . import checkout
from .outcome import Outcome, read_junit

PACKAGE = Path(__file__).resolve().parents[3]
SUITE = "test/test_dataloader.py"

# A test that hangs would hang the run; those of torch end themselves much sooner.
TEST_SECONDS_MAX = 300

SWAP = """
import torch.utils.data
import torch.utils.data.dataloader

import brimful

torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = brimful.DataLoader
"""


def run(source: str, work: Path, selection: str | None, package: str = "brimful") -> Outcome:
    """Runs the suite in `work`; `package` is whose loader is tested, "brimful" or "torch"."""
    versions = checkout.copy(source, [SUITE, "version.txt"], work)
    version = work / "version.txt"
    versions["suite"] = version.read_text().strip() if version.exists() else "unknown"
    versions["torch"] = metadata.version("torch")
    notes = []
    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("pytest_timeout") is not None:
        arguments += ["--timeout", str(TEST_SECONDS_MAX)]
    else:
        notes.append("pytest-timeout is not installed: a test that hangs is waited for")
    for needed in ("expecttest", "psutil"):
        if importlib.util.find_spec(needed) is None:
            notes.append(f"{needed} is not installed, and torch's tests look for it; `pip install {needed}`")
    if package != "torch":
        (work / "swap.py").write_text(SWAP)
        arguments += ["-p", "swap"]
    arguments += ["--junitxml", str(work / "report.xml"), Path(SUITE).name]
    if selection:
        arguments += ["-k", selection]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(work)])}
    for name in ("RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    subprocess.run(arguments, cwd=work / "test", env=environment, check=False)
    outcome = read_junit(work / "report.xml")
    outcome.versions, outcome.notes = versions, notes
    return outcome

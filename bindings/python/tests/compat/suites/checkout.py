"""Gets the files of a suite into a work folder, from a checkout or out of a git repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def copy(source: str, wanted: list[str], work: Path) -> dict[str, str]:
    """Copies the files and folders `wanted` that there are; returns what is known of their version.

    A file that a partial clone lacks is left out.

    Raises:
        SystemExit: if there is nothing at `source`.
    """
    path, _, revision = source.partition("@")
    if not Path(path).is_dir():
        raise SystemExit(f"{path} is no folder; give a checkout, or a git repository as PATH@REVISION")
    if not revision and any((Path(path) / name).exists() for name in wanted):
        for name in wanted:
            found = Path(path) / name
            if found.is_dir():
                shutil.copytree(found, work / name)
            elif found.exists():
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, work / name)
        return {"commit": _git(path, "rev-parse", "HEAD") or "unknown"}
    commit = _git(path, "rev-parse", f"{revision or 'HEAD'}^{{commit}}")
    if not commit:
        missing = " nor ".join(wanted)
        raise SystemExit(f"{path} has neither {missing}, nor is it a git repository with {revision or 'HEAD'}")
    for name in (_git(path, "ls-tree", "-r", "--name-only", commit, "--", *wanted) or "").splitlines():
        shown = subprocess.run(["git", "-C", path, "show", f"{commit}:{name}"], capture_output=True)
        if shown.returncode == 0:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_bytes(shown.stdout)
    return {"commit": commit}


def _git(path: str, *arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", path, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None

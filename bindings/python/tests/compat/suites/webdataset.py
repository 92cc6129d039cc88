"""webdataset's own tests against `brimful.webdataset`, or against webdataset itself."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from . import checkout
from .outcome import Outcome, read_junit

PACKAGE = Path(__file__).resolve().parents[3]
PHOTOS = "testdata/imagenet-000000.tgz"

# Refused at once: curl and others take it for the network being away.
NOWHERE = "http://127.0.0.1:9"

BLOCKER = '''
import sys
import brimful.webdataset

class Blocker:
    """Makes the real package unimportable: only the rewritten imports count."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "webdataset":
            raise ModuleNotFoundError(f"{name} is blocked while the suite runs", name=name)

sys.meta_path.insert(0, Blocker())
# The suite unpickles and runs commands, which brimful does only when told so.
brimful.webdataset.allow("pickle", "pipe")
'''


def run(source: str, work: Path, selection: str | None, package: str = "brimful.webdataset") -> Outcome:
    """Runs the suite in `work`; `package` is what it imports in webdataset's place."""
    versions = checkout.copy(source, ["tests", "testdata", "pyproject.toml"], work)
    versions["webdataset"] = _version(work / "pyproject.toml")
    notes = []
    if not (work / PHOTOS).exists():
        make_photos(work / PHOTOS)
        notes.append(f"{PHOTOS} was not at hand; 47 generated pictures stand in for it")
    (work / "pyproject.toml").unlink(missing_ok=True)
    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    if package != "webdataset":
        for path in (work / "tests").rglob("*.py"):
            path.write_text(rewrite(path.read_text(), package))
        (work / "blocker.py").write_text(BLOCKER)
        arguments += ["-p", "blocker"]
        notes.append('allow("pickle", "pipe") is in force, since the suite unpickles and runs commands')
    arguments += ["--junitxml", str(work / "report.xml"), "tests"]
    if selection:
        arguments += ["-k", selection]
    subprocess.run(arguments, cwd=work, env=_environment(work), check=False)
    outcome = read_junit(work / "report.xml")
    outcome.versions, outcome.notes = versions, notes
    return outcome


def rewrite(text: str, package: str) -> str:
    """The text of a test with its imports of webdataset pointing at `package`."""
    text = re.sub(r"^(\s*)import webdataset as (\w+)", rf"\1import {package} as \2", text, flags=re.MULTILINE)
    return re.sub(r"^(\s*)from webdataset([\s.])", rf"\1from {package}\2", text, flags=re.MULTILINE)


def make_photos(path: Path) -> None:
    """A shard with as many samples, and the same fields and first picture's size, as the one that the tests name."""
    import numpy
    from PIL import Image

    rng = numpy.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for number in range(47):
            pixels = rng.integers(0, 256, (793, 600, 3) if number == 0 else (60 + number, 80, 3), dtype=numpy.uint8)
            png = io.BytesIO()
            Image.fromarray(pixels).save(png, "PNG")
            fields = {"cls": b"%d" % number, "png": png.getvalue(), "wnid": b"n%08d" % number, "xml": b"<photo/>"}
            for ext, data in fields.items():
                member = tarfile.TarInfo(f"{number:02d}.{ext}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _environment(work: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(work)])}
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        environment[name] = NOWHERE
    for name in ("no_proxy", "NO_PROXY", "RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    environment["HOME"] = str(work)
    return environment


def _version(path: Path) -> str:
    found = re.search(r'^version\s*=\s*"([^"]+)"', path.read_text(), re.MULTILINE) if path.exists() else None
    return found.group(1) if found else "unknown"

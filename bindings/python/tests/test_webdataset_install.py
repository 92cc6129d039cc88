"""Libraries that import webdataset themselves find brimful.webdataset, once it was put there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.webdataset import installation

PACKAGE = Path(__file__).resolve().parents[1]

LIBRARY = """
import webdataset as wds
from webdataset import autodecode, cache, gopen, writer
from webdataset.filters import _shuffle, getfirst, pipelinefilter
from webdataset.shardlists import expand_urls
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander, url_opener, valid_sample
from webdataset.utils import pytorch_worker_seed
import webdataset.compat


class Stage(wds.PipelineStage):
    def run(self, source):
        return _shuffle(source, 10, 10)


def samples(pattern):
    return wds.DataPipeline(wds.SimpleShardList(pattern), Stage(), wds.tarfile_to_samples())
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    # Starting without torch takes a tenth of the time.
    (folder / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{folder}", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def library(tmp_path) -> Path:
    (tmp_path / "library.py").write_text(LIBRARY)
    return tmp_path


def test_a_library_finds_it_after_install(library, pattern):
    script = library / "script.py"
    script.write_text(
        "import brimful.webdataset\n"
        "brimful.webdataset.install()\n"
        "import library, sys\n"
        "print(library.wds.__name__, len(list(library.samples(sys.argv[1]))))\n"
    )
    done = run(library, str(script), pattern)
    assert done.stdout.split() == ["brimful.webdataset", "48"], done.stderr


def test_a_script_that_knows_nothing_of_it_is_run_with_it(library, pattern):
    script = library / "script.py"
    script.write_text(
        "import sys\n"
        "import library, webdataset\n"
        "if __name__ == '__main__':\n"
        "    print(webdataset.__name__, sys.argv[1:] == [sys.argv[-1]], len(list(library.samples(sys.argv[1]))))\n"
    )
    done = run(library, "-m", "brimful.webdataset", str(script), pattern)
    assert done.stdout.split() == ["brimful.webdataset", "True", "48"], done.stderr
    done = run(library, "-m", "brimful.webdataset", "-m", "script", pattern)
    assert done.stdout.split() == ["brimful.webdataset", "True", "48"], done.stderr


def test_without_a_script_it_says_how_it_is_used(tmp_path):
    assert "SCRIPT" in run(tmp_path, "-m", "brimful.webdataset", "--help").stdout
    assert run(tmp_path, "-m", "brimful.webdataset").returncode == 2


def test_install_after_another_webdataset_is_refused(tmp_path):
    (tmp_path / "webdataset.py").write_text("")
    code = "import webdataset, brimful.webdataset; brimful.webdataset.install()"
    done = run(tmp_path, "-c", code)
    assert "call brimful.webdataset.install() before" in done.stderr


def test_uninstall_takes_it_back(tmp_path):
    code = (
        "import sys, brimful.webdataset as wds; wds.install(); wds.uninstall(); "
        "print([name for name in sys.modules if name.startswith('webdataset')])"
    )
    assert run(tmp_path, "-c", code).stdout.strip() == "[]"


def test_it_neither_imports_nor_needs_webdataset_or_its_dependencies(tmp_path):
    for name in ("webdataset", "braceexpand", "yaml", "torch", "torchvision", "PIL"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')\n")
    code = (
        "import brimful.webdataset as wds; "
        "print(list(wds.SimpleShardList('{1..2}')), wds.WebDataset('a.tar', shardshuffle=False).explain().engine)"
    )
    done = run(tmp_path, "-c", code)
    assert done.stdout.strip() == "[{'url': '1'}, {'url': '2'}] python", done.stderr


def test_every_module_that_is_put_there_exists():
    import importlib

    for module in installation.MODULES:
        importlib.import_module(f"brimful.webdataset.{module}")

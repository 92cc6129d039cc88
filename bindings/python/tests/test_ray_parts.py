"""How a conversion on Ray is dealt out, with a stand-in for Ray that runs each task where it is."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

import brimful


class Cluster(types.ModuleType):
    """A cluster of so many CPUs; it notes what the tasks were given."""

    def __init__(self, cpus: int) -> None:
        super().__init__("ray")
        self.cpus = cpus
        self.tasks: list[list[str]] = []
        self.lost: str | None = None

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)}

    def remote(self, **_options: int):
        def task(function):
            def run(arguments: list[str]):
                self.tasks.append(arguments)
                if arguments[-1] == self.lost:
                    raise ConnectionError("the worker is lost")
                return function(arguments)

            return types.SimpleNamespace(remote=run)

        return task

    def get(self, made):
        return made


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster(8)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.delitem(sys.modules, "brimful.ray", raising=False)
    cluster.convert = importlib.import_module("brimful.ray").convert
    yield cluster
    sys.modules.pop("brimful.ray", None)


@pytest.fixture
def photos(tmp_path) -> Path:
    for number in range(40):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 500)
    return tmp_path / "photos"


def test_a_second_call_goes_on_with_as_many_parts_as_the_first_began(cluster, photos, tmp_path):
    cluster.lost = "3/4"
    with pytest.raises(ConnectionError):
        cluster.convert(photos, tmp_path / "out", threads=2, samples_per_shard=4)
    assert not (tmp_path / "out" / "dataset.json").exists()
    # The cluster has grown meanwhile.
    cluster.lost, cluster.cpus, cluster.tasks = None, 64, []
    dataset = cluster.convert(photos, tmp_path / "out", threads=2, samples_per_shard=4)
    assert dataset["samples"] == 40
    assert [words[-1] for words in cluster.tasks] == ["1/4", "2/4", "3/4", "4/4"]


def test_paths_are_those_of_the_caller_wherever_workers_run(cluster, photos, tmp_path, monkeypatch):
    # The package may have been named by a path relative to another folder.
    monkeypatch.setenv("PYTHONPATH", str(Path(brimful.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    dataset = cluster.convert("photos", Path("out"), threads=4, samples_per_shard=4)
    assert dataset["samples"] == 40
    for words in cluster.tasks:
        assert words[1:3] == [str(photos), str(tmp_path / "out")]

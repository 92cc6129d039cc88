"""Conversions on a local Ray cluster: the same bytes as on one machine, also when a worker is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from brimful.ray import ConversionError, convert  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    # Workers find the package where this process does.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(2000):
        path = folder / f"class{number % 3}" / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([number % 251]) * (20_000 + number % 977))
    return folder


@pytest.fixture(scope="module")
def expected(photos, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    options = ["--samples-per-shard", "50", "--shuffle", "3"]
    subprocess.run(
        [sys.executable, "-m", "brimful", "convert", photos, folder, *options], check=True, capture_output=True
    )
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_parts_on_a_cluster_make_the_same_bytes(cluster, photos, expected, tmp_path):
    dataset = convert(photos, tmp_path / "out", parts=3, threads=1, samples_per_shard=50, shuffle=3)
    assert dataset["samples"] == 2000
    assert files(tmp_path / "out") == expected
    # What is complete stays as it is.
    again = convert(photos, tmp_path / "out", parts=3, threads=1, samples_per_shard=50, shuffle=3)
    assert again == dataset


def worker_of(destination: Path) -> int | None:
    """The process that started a command which writes to `destination`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(destination) in words and b"--part" in words:
                return int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return None


def test_a_worker_that_is_killed_midway_changes_nothing(cluster, photos, expected, tmp_path):
    destination, killed = tmp_path / "out", []

    def kill() -> None:
        deadline = time.monotonic() + 300
        while not killed and time.monotonic() < deadline:
            shards = list(destination.glob("train-*.tar")) if destination.exists() else []
            worker = worker_of(destination) if shards else None
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    convert(photos, destination, parts=2, threads=1, samples_per_shard=50, shuffle=3)
    killer.join()
    assert killed, "no worker was seen at work"
    assert files(destination) == expected


def test_a_part_that_fails_says_why(cluster, photos, tmp_path):
    with pytest.raises(ConversionError, match="lies inside the source"):
        convert(photos, photos / "out", parts=2, threads=1)
    with pytest.raises(TypeError, match="'part'"):
        convert(photos, tmp_path / "out", part="1/2")

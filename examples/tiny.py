"""Shards for the examples: those named on the command line, or a few little pictures that are made on the spot."""

from __future__ import annotations

import io
import random
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

SAMPLES, SHARDS, CLASSES, SIZE = 96, 3, 10, 32
FIELDS = ("jpg;jpeg;png;ppm", "cls")


def shards() -> str:
    """A pattern of shards; every process of a job makes the same ones."""
    if len(sys.argv) > 1:
        return sys.argv[1]
    folder = Path(tempfile.mkdtemp(prefix="brimful-example-"))
    rng = random.Random(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"tiny-{shard}.tar", "w") as tar:
            for number in range(shard, SAMPLES, SHARDS):
                label = number % CLASSES
                # Brighter from class to class, so that there is something to learn.
                pixels = bytes(rng.randrange(20 * label, 20 * label + 60) for _ in range(3 * SIZE * SIZE))
                _add(tar, f"{number:04d}.ppm", b"P6 %d %d 255\n" % (SIZE, SIZE) + pixels)
                _add(tar, f"{number:04d}.cls", b"%d" % label)
    return str(folder / "*.tar")


def remove(pattern: str) -> None:
    """Takes away what `shards` made, and nothing else."""
    folder = Path(pattern).parent
    if folder.name.startswith("brimful-example-"):
        shutil.rmtree(folder)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))

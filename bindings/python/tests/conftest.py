"""Shards of generated photos that every test may read."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import numpy
import pytest
from PIL import Image

SAMPLES = 48
SHARDS = 3

PHOTOS = Path(__file__).resolve().parents[4] / "shared" / "photos"


def photo(number: int, width: int = 160, height: int = 120) -> Image.Image:
    """A picture with gradients, edges and some noise, another one for each number."""
    rng = numpy.random.default_rng(number)
    y, x = numpy.mgrid[0:height, 0:width].astype(numpy.float64)
    periods = rng.uniform(6, 30, (3, 2))
    waves = [numpy.sin(x / across) * numpy.cos(y / down) for across, down in periods]
    pixels = 127 + 90 * numpy.stack(waves, axis=-1)
    left, top = rng.integers(0, width // 2), rng.integers(0, height // 2)
    pixels[top : top + height // 3, left : left + width // 3] = rng.integers(0, 256, 3)
    pixels += rng.normal(0, 4, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


def jpeg(image: Image.Image, quality: int = 90) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def write_shard(path: Path, samples: list[dict[str, bytes]]) -> Path:
    """A tar file of samples: `{"__key__": b"...", ext: bytes}`."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            key = os.fsdecode(sample["__key__"])
            for ext, data in sample.items():
                if ext != "__key__":
                    member = tarfile.TarInfo(f"{key}.{ext}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return path


def sample(number: int, **sizes: int) -> dict[str, bytes]:
    return {
        "__key__": f"{number:04d}".encode(),
        "jpg": jpeg(photo(number, **sizes)),
        "cls": str(number).encode(),
        "txt": f"photo {number}".encode(),
        "json": json.dumps({"label": number, "tags": ["a", number]}).encode(),
    }


@pytest.fixture(scope="session")
def samples() -> list[dict[str, bytes]]:
    return [sample(n) for n in range(SAMPLES)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, samples: list[dict[str, bytes]]) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    per_shard = SAMPLES // SHARDS
    for shard in range(SHARDS):
        write_shard(folder / f"train-{shard:03d}.tar", samples[shard * per_shard : (shard + 1) * per_shard])
    return folder


@pytest.fixture(scope="session")
def pattern(folder: Path) -> str:
    return str(folder / f"train-{{000..{SHARDS - 1:03d}}}.tar")


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A shard of one photo that takes a while to decode."""
    row = {"__key__": b"a", "jpg": jpeg(photo(0, 2400, 1800))}
    return str(write_shard(tmp_path_factory.mktemp("large") / "large.tar", [row]))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's cache, or sees the ranks of a job around it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in list(os.environ):
        if name.startswith(("RANK", "WORLD_SIZE", "SLURM_", "OMPI_COMM_", "MV2_COMM_", "PMI_")):
            monkeypatch.delenv(name)
    return tmp_path / "cache"

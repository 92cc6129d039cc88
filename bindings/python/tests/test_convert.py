"""Shards that `brimful convert` writes, opened by every reader of tar archives at hand: the same contents."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import brimful

LONG = "x" * 120


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(40):
        # Names that ustar holds, and some that it does not; sizes around that of a block.
        name = f"é {number:03}" if number % 5 else f"{LONG}{number:03}"
        path = folder / f"class {number % 3}" / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([number]) * (500 + number))
    return folder


@pytest.fixture(scope="module")
def shards(photos, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shards") / "out"
    command = [
        sys.executable,
        "-m",
        "brimful",
        "convert",
        photos,
        folder,
        "--samples-per-shard",
        "16",
        "--shuffle",
        "1",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return sorted(folder.glob("*.tar"))


@pytest.fixture(scope="module")
def expected(photos) -> dict[str, tuple[bytes, int]]:
    """Bytes and class by key."""
    classes = {path.name: number for number, path in enumerate(sorted(photos.iterdir()))}
    files = sorted(photos.glob("*/*.jpg"))
    return {f"{path.parent.name}/{path.stem}": (path.read_bytes(), classes[path.parent.name]) for path in files}


def test_tarfile_reads_the_same(shards, expected):
    found: dict[str, dict[str, bytes]] = {}
    for shard in shards:
        with tarfile.open(shard) as archive:
            for member in archive:
                assert member.isfile() and member.mtime == 0
                key, _, extension = member.name.rpartition(".")
                found.setdefault(key, {})[extension] = archive.extractfile(member).read()
    assert {key: (fields["jpg"], int(fields["cls"])) for key, fields in found.items()} == expected


def test_webdataset_reads_the_same(shards, expected):
    webdataset = pytest.importorskip("webdataset")
    data = webdataset.WebDataset([str(shard) for shard in shards], shardshuffle=False)
    found = {sample["__key__"]: (sample["jpg"], int(sample["cls"])) for sample in data}
    assert found == expected


@pytest.mark.parametrize("program", ["tar", "bsdtar"])
def test_programs_extract_the_same(program, shards, expected, tmp_path):
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on this machine")
    for shard in shards:
        subprocess.run([program, "-xf", shard, "-C", tmp_path], check=True)
    files = tmp_path.glob("*/*.jpg")
    found = {f"{path.parent.name}/{path.stem}": path.read_bytes() for path in files}
    assert found == {key: bytes_ for key, (bytes_, _) in expected.items()}


def test_dali_reads_the_same(shards, expected, tmp_path):
    fn = pytest.importorskip("nvidia.dali.fn")
    from nvidia.dali import pipeline_def

    # DALI's index knows no blanks in names, so its reader makes its own list of each shard.
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return fn.readers.webdataset(paths=[str(shard) for shard in shards], ext=["jpg", "cls"])

    pipe = pipeline()
    found = [tuple(bytes(field.as_array()[0]) for field in pipe.run()) for _ in expected]
    assert sorted(found) == sorted((bytes_, b"%d" % label) for bytes_, label in expected.values())


def test_brimful_reads_the_same_and_the_description_is_right(shards, expected):
    dataset = brimful.ShardDataset([str(shard) for shard in shards], fields=("jpg:bytes", "cls", "__key__"))
    assert {key: (bytes(bytes_), label) for bytes_, label, key in dataset} == expected
    description = json.loads((shards[0].parent / "dataset.json").read_text())
    assert (description["samples"], description["classes"]) == (40, 3)
    assert [shard["bytes"] for shard in description["splits"][0]["shards"]] == [path.stat().st_size for path in shards]

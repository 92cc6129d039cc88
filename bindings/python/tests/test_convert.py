"""Shards that `brimful convert` writes, opened by every reader of tar archives at hand: the same contents."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import brimful

LONG = "x" * 120


def command(*words: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "brimful", *map(str, words)]
    return subprocess.run(words, check=True, capture_output=True, text=True)


def contents(folder: Path) -> dict[str, dict[str, bytes]]:
    """Fields by key, of all shards in a folder."""
    found: dict[str, dict[str, bytes]] = {}
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                key, _, extension = member.name.rpartition(".")
                found.setdefault(key, {})[extension] = archive.extractfile(member).read()
    return found


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
    command("convert", photos, folder, "--samples-per-shard", 16, "--shuffle", 1)
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
        return tuple(fn.readers.webdataset(paths=[str(shard) for shard in shards], ext=["jpg", "cls"]))

    pipe = pipeline()
    found = [tuple(bytes(field.as_array()[0]) for field in pipe.run()) for _ in expected]
    # Without an index it knows no names that are longer than ustar has room for, and finds no fields there.
    short = [(bytes_, b"%d" % label) for key, (bytes_, label) in expected.items() if LONG not in key]
    assert sorted(fields for fields in found if fields != (b"", b"")) == sorted(short)


def test_brimful_reads_the_same_and_the_description_is_right(shards, expected):
    dataset = brimful.ShardDataset([str(shard) for shard in shards], fields=("jpg:bytes", "cls", "__key__"))
    assert {key: (bytes(bytes_), label) for bytes_, label, key in dataset} == expected
    description = json.loads((shards[0].parent / "dataset.json").read_text())
    assert (description["samples"], description["classes"]) == (40, 3)
    assert [shard["bytes"] for shard in description["splits"][0]["shards"]] == [path.stat().st_size for path in shards]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory) -> list[Path]:
    """Shards whose names DALI's index can hold, with DALI's index beside each."""
    folder = tmp_path_factory.mktemp("indexed")
    for number in range(30):
        name = f"{number:03}" if number % 5 else f"{LONG}{number:03}"
        path = folder / "photos" / f"class{number % 3}" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * (500 + number))
    command("convert", folder / "photos", folder / "out", "--samples-per-shard", 11)
    shards = sorted((folder / "out").glob("*.tar"))
    command("index", "--format", "dali", *shards)
    return shards


def test_the_index_of_dali_is_as_its_own_tool_writes_it(indexed):
    for shard in indexed:
        samples: dict[str, list[str]] = {}
        with tarfile.open(shard) as archive:
            for member in archive:
                # A key ends at the first dot behind the folders; offsets are those of the data.
                key, _, extension = member.name.partition(".")
                samples.setdefault(key, []).append(f"{extension} {member.offset_data} {member.size} {member.name}")
        lines = [f"v1.2 {len(samples)}", *(" ".join(fields) for fields in samples.values())]
        assert shard.with_suffix(".idx").read_text().splitlines() == lines


def test_dali_reads_by_the_index(indexed):
    fn = pytest.importorskip("nvidia.dali.fn")
    from nvidia.dali import pipeline_def

    paths = [str(shard) for shard in indexed]
    indexes = [str(shard.with_suffix(".idx")) for shard in indexed]

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        return tuple(fn.readers.webdataset(paths=paths, index_paths=indexes, ext=["jpg", "cls"]))

    pipe = pipeline()
    expected = [(fields["jpg"], fields["cls"]) for fields in contents(indexed[0].parent).values()]
    found = [tuple(bytes(field.as_array()[0]) for field in pipe.run()) for _ in expected]
    assert found == expected


def test_classes_and_samples_are_ordered_as_torchvision_orders_them(tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    names = [
        "b/2.jpg",
        "b/10.jpg",
        "B/x.PNG",
        "a/z.jpeg",
        "a-1/y.jpg",
        "a/sub-1/p.jpg",
        "a/sub/q.webp",
        "a/sub/r/s.jpg",
    ]
    for name in [*names, "é/a.jpg", "z/ü.jpg", "z/y.txt", "Z/u.tif"]:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    expected = datasets.ImageFolder(tmp_path / "photos")
    command("convert", tmp_path / "photos", tmp_path / "out")
    found = contents(tmp_path / "out")
    pictures = [(picture, int(cls)) for cls, picture in (sorted_fields(fields) for fields in found.values())]
    assert pictures == [(Path(path).read_bytes(), label) for path, label in expected.samples]
    assert json.loads((tmp_path / "out/classes.json").read_text()) == expected.class_to_idx


def sorted_fields(fields: dict[str, bytes]) -> tuple[bytes, bytes]:
    """The label, then the one other field."""
    (picture,) = (value for extension, value in fields.items() if extension != "cls")
    return fields["cls"], picture


def test_zip_archives_of_another_writer_are_read(tmp_path):
    expected = {}
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for number in range(20):
            name, bytes_ = f"set/class{number % 2}/{number:02}", bytes([number]) * (number * 1000)
            info = zipfile.ZipInfo(f"{name}.jpg")
            info.compress_type = zipfile.ZIP_DEFLATED if number % 3 else zipfile.ZIP_STORED
            with archive.open(info, "w", force_zip64=number % 4 == 0) as file:
                file.write(bytes_)
            expected[name.removeprefix("set/")] = {"jpg": bytes_, "cls": b"%d" % (number % 2)}
    command("convert", tmp_path / "photos.zip", tmp_path / "out")
    assert contents(tmp_path / "out") == expected
    with zipfile.ZipFile(tmp_path / "odd.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a/0.jpg", b"x")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        command("convert", tmp_path / "odd.zip", tmp_path / "odd")
    assert "other than deflate" in caught.value.stderr


def test_a_data_set_of_the_hugging_face_hub_is_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    pictures = [b"\xff\xd8\xff" + bytes([number]) * (2000 + 997 * number) for number in range(60)]
    table = pyarrow.table(
        {
            "image": [{"bytes": bytes_, "path": f"{number}.jpg"} for number, bytes_ in enumerate(pictures)],
            "label": pyarrow.array([number % 2 for number in range(60)], pyarrow.int64()),
            "caption": [None if number % 7 == 0 else f"ünï {number}" for number in range(60)],
            "objects": [[{"box": [number, 0.5], "name": "x"}] * (number % 3) for number in range(60)],
        }
    ).replace_schema_metadata({"huggingface": json.dumps(names)})
    for number, (version, compression, rows) in enumerate(
        [("1.0", "snappy", 7), ("2.0", "zstd", 60), ("1.0", "gzip", 9)]
    ):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        parquet.write_table(
            table,
            folder / "train-00000-of-00001.parquet",
            data_page_version=version,
            compression=compression,
            row_group_size=rows,
            data_page_size=10_000,
            write_page_checksum=True,
        )
        command("convert", folder, tmp_path / "out" / f"{number}", "--shuffle", number)
        found = contents(tmp_path / "out" / f"{number}")
        assert [found[f"{row:08}"]["jpg"] for row in range(60)] == pictures
        assert [int(found[f"{row:08}"]["cls"]) for row in range(60)] == table["label"].to_pylist()
        for row, fields in enumerate(json.loads(found[f"{row:08}"]["json"]) for row in range(60)):
            assert (fields["image.path"], fields["caption"]) == (f"{row}.jpg", table["caption"][row].as_py())
            assert fields["objects.box"] == [[float(row), 0.5]] * (row % 3)
            assert fields["objects.name"] == ["x"] * (row % 3)
        assert json.loads((tmp_path / "out" / f"{number}" / "classes.json").read_text()) == {"cat": 0, "dog": 1}


def test_the_three_lines_that_are_printed_load_the_shards(tmp_path):
    pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    for number in range(12):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = io.BytesIO()
        image.new("RGB", (300, 240), (number * 20, 0, 0)).save(file, "PNG")
        path.write_bytes(file.getvalue())
    # A folder whose name must be quoted in Python.
    folder = tmp_path / 'new "shards" ü'
    lines = command("convert", tmp_path / "photos", folder, "--samples-per-shard", 5).stdout.splitlines()[-3:]
    assert lines[0].startswith("from brimful import ")
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    batches = [(tuple(images.shape), sorted(labels.tolist())) for images, labels in names["loader"]]
    assert batches == [((12, 3, 224, 224), [0] * 6 + [1] * 6)]

"""Shards that are written: what is in them, who can read them, and what is refused."""

from __future__ import annotations

import io
import os
import tarfile

import numpy
import pytest

import brimful
import brimful.webdataset as wds
from brimful.webdataset import writer


def read(path, *specs):
    return list(wds.WebDataset(str(path), shardshuffle=False).decode(*specs))


SAMPLE = {
    "__key__": "a/b",
    "__meta__": "dropped",
    "txt": "é",
    "cls": 3,
    "json": {"a": [1]},
    "npy": numpy.arange(3),
    "ten": [numpy.zeros(2), numpy.ones((1, 2), dtype="f4")],
    "png": numpy.full((4, 5, 3), 200, dtype=numpy.uint8),
    "txt.gz": "z" * 1000,
}


def test_what_is_written_is_read_back(tmp_path):
    with wds.TarWriter(tmp_path / "a.tar") as sink:
        assert sink.write(SAMPLE) > 0
    (sample,) = read(tmp_path / "a.tar", "rgb8")
    assert sample["__key__"] == "a/b" and "__meta__" not in sample
    assert (sample["txt"], sample["cls"], sample["json"], sample["txt.gz"]) == ("é", 3, {"a": [1]}, "z" * 1000)
    assert sample["npy"].tolist() == [0, 1, 2]
    assert [part.shape for part in sample["ten"]] == [(2,), (1, 2)]
    assert (sample["png"] == 200).all()


@pytest.mark.parametrize(
    ("ending", "magic"), [("tar", b"a"), ("tgz", b"\x1f\x8b"), ("tar.bz2", b"BZh"), ("tar.xz", b"\xfd7z")]
)
def test_the_ending_of_the_name_says_how_it_is_compressed(tmp_path, ending, magic):
    path = tmp_path / f"a.{ending}"
    with wds.TarWriter(str(path)) as sink:
        sink.write({"__key__": "a", "txt": "x"})
    assert path.read_bytes().startswith(magic)
    assert read(path)[0]["txt"] == "x"


def test_members_have_one_block_of_header_and_whole_seconds(tmp_path):
    path = tmp_path / "a.tar"
    with wds.TarWriter(str(path), mtime=1.75) as sink:
        sink.write({"__key__": "a", "txt": "x", "cls": 1})
        sink.write({"__key__": "é" * 100, "txt": "x"})
    with tarfile.open(path) as tar:
        first, second, third = tar.getmembers()
    assert [first.name, second.name, third.name] == ["a.cls", "a.txt", "é" * 100 + ".txt"]
    assert (first.mtime, first.uname, first.gname, first.mode) == (1, "bigdata", "bigdata", 0o444)
    assert second.offset - first.offset == 1024
    assert not first.pax_headers and third.pax_headers
    assert len(brimful.ShardDataset(str(path), fields="txt")) == 2


@pytest.mark.parametrize("format", ["PAX_FORMAT", "GNU_FORMAT", "USTAR_FORMAT"])
def test_another_format_is_written_when_it_is_asked_for(tmp_path, format):
    path = tmp_path / "a.tar"
    with wds.TarWriter(str(path), format=format) as sink:
        sink.write({"__key__": "a", "txt": "x"})
    assert read(path)[0]["txt"] == "x"


@pytest.mark.parametrize(
    ("sample", "advice"),
    [
        ({"txt": "x"}, "__key__"),
        ({"__key__": "a", "strange": 3}, "no handler found"),
        ({"__key__": "a", "cls": None}, "leave the field out"),
        ({"__key__": "a", "png": numpy.full((2, 2), 3.0)}, "out of range"),
        ({"__key__": "a", "npy": numpy.array([object()])}, "pickle"),
        ({"__key__": "taken", "txt": "x"}, "written before"),
    ],
)
def test_samples_that_nobody_could_read_are_refused(sample, advice):
    sink = wds.TarWriter(io.BytesIO())
    sink.write({"__key__": "taken", "txt": "x"})
    with pytest.raises(ValueError, match=advice):
        sink.write(sample)


def test_a_dot_in_a_key_is_told():
    with pytest.warns(brimful.DataWarning, match="dot"):
        wds.TarWriter(io.BytesIO()).write({"__key__": "a.b", "txt": "x"})


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [({"compress": "zip"}, "bz2"), ({"format": "ZIP"}, "USTAR_FORMAT"), ({"encoder": 3}, "dict of functions")],
)
def test_refused_arguments_say_what_there_is(arguments, advice):
    with pytest.raises(ValueError, match=advice):
        wds.TarWriter(io.BytesIO(), **arguments)


def test_encoders_of_ones_own(tmp_path):
    for encoder in ({"x": str.encode}, lambda sample: {**sample, "x": sample["x"].encode()}):
        buffer = io.BytesIO()
        with wds.TarWriter(buffer, encoder=encoder, keep_meta=True) as sink:
            sink.write({"__key__": "a", "x": "1", "_about": "me"})
        (tmp_path / "a.tar").write_bytes(buffer.getvalue())
        (sample,) = wds.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)
        assert (sample["x"], sample["_about"]) == (b"1", b"me")
    with pytest.raises(ValueError, match="encoder=True"):
        wds.TarWriter(io.BytesIO(), encoder=False).write({"__key__": "a", "cls": 3})


def test_shards_are_begun_by_count_and_by_size(tmp_path):
    done = []
    with wds.ShardWriter(str(tmp_path / "c-%02d.tar"), maxcount=4, post=done.append, verbose=0, start_shard=3) as sink:
        for number in range(10):
            sink.write({"__key__": str(number), "cls": number})
    assert [os.path.basename(name) for name in done] == ["c-03.tar", "c-04.tar", "c-05.tar"]
    assert len(read(f"{tmp_path}/c-{{03..05}}.tar")) == 10
    with wds.ShardWriter(str(tmp_path / "s-%d.tar"), maxsize=2500, verbose=0) as sink:
        for number in range(4):
            sink.write({"__key__": str(number), "bin": bytes(1000)})
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith("s-")) == ["s-0.tar", "s-1.tar"]
    with pytest.raises(ValueError, match="%06d"):
        wds.ShardWriter(str(tmp_path / "all.tar"))


def test_half_an_archive_is_not_left_behind(tmp_path):
    with pytest.raises(ValueError), wds.TarWriter(str(tmp_path / "a.tar")) as sink:
        sink.write({"__key__": "a", "txt": "x"})
        sink.write({"__key__": "a", "txt": "x"})
    assert os.listdir(tmp_path) == []
    sink = wds.TarWriter(str(tmp_path / "a.tar"))
    sink.write({"__key__": "a", "txt": "x"})
    assert not (tmp_path / "a.tar").exists()
    sink.close()
    assert os.listdir(tmp_path) == ["a.tar"]


def test_every_picture_format_is_written(tmp_path):
    image = numpy.linspace(0, 1, 48).reshape(4, 4, 3)
    for ext in ("jpg", "png", "ppm", "tiff", "img"):
        assert len(writer.imageencoder(image, ext)) > 40
    assert writer.imageencoder(numpy.zeros((4, 4)), "pgm").startswith(b"P5")
    with pytest.raises(AssertionError, match=r"\[H, W, 3\]"):
        writer.imageencoder(numpy.zeros((4, 4, 7)), "png")

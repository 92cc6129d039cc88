"""Archives as streams: members and samples by webdataset's rules, damage that is told, and what strict passes over."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import warnings

import pytest

import brimful
import brimful.webdataset as wds
from brimful.webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_iterator


def archive(members, format=tarfile.PAX_FORMAT, **header) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for field, value in header.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def names(data: bytes, **kw) -> list[str]:
    return [member["fname"] for member in tar_file_iterator(io.BytesIO(data), **kw)]


def keys(path, **kw) -> list[str]:
    return [sample["__key__"] for sample in wds.WebDataset(str(path), shardshuffle=False, **kw)]


LONG = "folder/" * 40 + "é" * 80 + ".txt"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("mtime", [0, 1.5])
def test_members_of_every_format_are_those_that_tarfile_finds(format, mtime):
    members = [("a.txt", b"x"), ("b" * 90 + "/" + "c" * 90 + ".bin", b"y" * 1000), ("empty.bin", b"")]
    if format != tarfile.USTAR_FORMAT:
        members.append((LONG, b"z" * 513))
    data = archive(members, format, mtime=mtime)
    read = {member["fname"]: member["data"] for member in tar_file_iterator(io.BytesIO(data))}
    assert read == dict(members)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_compression_is_seen_from_the_first_bytes(pack):
    members = [(f"{number}.txt", b"%d" % number * 700) for number in range(5)]
    assert names(pack(archive(members))) == [name for name, _ in members]


def test_files_that_are_no_regular_ones_are_left_out():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind in (
            ("d", tarfile.DIRTYPE),
            ("l", tarfile.SYMTYPE),
            ("h", tarfile.LNKTYPE),
            ("p", tarfile.FIFOTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "a.txt"
            tar.addfile(member)
        tar.addfile(tarfile.TarInfo("a.txt"))
    assert names(buffer.getvalue()) == ["a.txt"]


MEMBERS = [(f"{number}.txt", b"%d" % number * 900) for number in range(4)]
WHOLE = archive(MEMBERS, tarfile.USTAR_FORMAT)
# One block of header and two of data each.
MEMBER = 3 * 512


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("data", "message", "strict"),
    [
        (b"", "empty file", None),
        (b"no archive at all" * 100, "no tar archive", None),
        (WHOLE[:300], "truncated header", None),
        (WHOLE[: MEMBER * 2 + 700], "unexpected end of data", None),
        (WHOLE[: MEMBER * 2], "was cut", 2),
        (WHOLE[: MEMBER * 2 + 100], "truncated header", 2),
        (flipped(WHOLE, MEMBER * 2 + 3), "no tar header at byte 3072", 2),
        (gzip.compress(WHOLE)[:-12], "damaged or cut", 4),
    ],
)
def test_damage_is_an_error_that_names_the_place_and_strict_passes_over_some(data, message, strict):
    with pytest.raises(tarfile.ReadError, match=message):
        names(data)
    if strict is None:
        with pytest.raises(tarfile.ReadError):
            names(data, compat="strict")
    else:
        assert len(names(data, compat="strict")) == strict


def test_samples_before_the_damage_come_first(tmp_path):
    (tmp_path / "a.tar").write_bytes(WHOLE[: MEMBER * 3])
    seen = []
    with pytest.raises(tarfile.ReadError):
        seen.extend(keys_until_error(tmp_path / "a.tar", seen))
    # The last one may have more fields behind the cut.
    assert seen == ["0", "1"]


def keys_until_error(path, seen):
    for sample in wds.WebDataset(str(path), shardshuffle=False):
        seen.append(sample["__key__"])
    return []


def test_a_handler_that_goes_on_reads_the_next_shard(tmp_path):
    (tmp_path / "0.tar").write_bytes(WHOLE[: MEMBER * 2])
    (tmp_path / "1.tar").write_bytes(WHOLE)
    pattern = str(tmp_path / "{0..1}.tar")
    with warnings.catch_warnings():
        # Keys that come again in another shard are no torn samples.
        warnings.simplefilter("error")
        assert keys(pattern, handler=wds.ignore_and_continue)[-4:] == ["0", "1", "2", "3"]
    assert len(keys(pattern, handler=wds.ignore_and_stop)) < 4


def test_archives_joined_by_cat_are_read_on_and_strict_stops_at_the_first():
    assert len(names(WHOLE + WHOLE)) == 8
    assert len(names(WHOLE + WHOLE, compat="strict")) == 4
    assert len(names(WHOLE + b"something else" * 100)) == 4


def test_apple_double_files_are_left_out_and_told():
    data = archive([("d/a.jpg", b"x"), ("d/._a.jpg", b"mac"), ("._b.jpg", b"mac")])
    with pytest.warns(brimful.DataWarning, match="left out 2 files"):
        assert names(data) == ["d/a.jpg"]
    assert names(data, compat="strict") == ["d/a.jpg", "d/._a.jpg", "._b.jpg"]


def test_torn_samples_are_told_once_a_shard(tmp_path):
    torn = [(f"{number}.{ext}", b"1") for ext in ("jpg", "cls") for number in range(3)]
    (tmp_path / "a.tar").write_bytes(archive(torn))
    with pytest.warns(brimful.DataWarning, match="torn apart") as told:
        assert keys(tmp_path / "a.tar") == ["0", "1", "2", "0", "1", "2"]
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(keys(tmp_path / "a.tar", compat="strict")) == 6


@pytest.mark.parametrize(
    ("name", "key", "field"),
    [
        ("a.jpg", "a", "jpg"),
        ("a.b.jpg", "a", "b.jpg"),
        ("dir/x.y/img.left.JPG", "dir/x.y/img", "left.JPG"),
        ("./a.jpg", "./a", "jpg"),
        ("/abs/a.jpg", "/abs/a", "jpg"),
        ("d1/../a.jpg", "d1/../a", "jpg"),
        ("a..jpg", "a", ".jpg"),
        ("b.", "b", ""),
        ("nodot", None, None),
        ("a.b/c", None, None),
        (".hidden", None, None),
        (".hidden.jpg", None, None),
        ("dir/.hidden.jpg", "dir/", "hidden.jpg"),
        ("d/__m__.jpg", "d/__m__", "jpg"),
    ],
)
def test_key_and_field_part_at_the_first_dot_behind_the_last_slash(name, key, field):
    # A folder may be empty before a name that begins with a dot.
    found = base_plus_ext(name)
    assert found == (key, field) or (key == "dir/" and found == (None, None))


def test_names_about_the_archive_are_left_out():
    data = archive([("__x__", b""), ("__x__/a.txt", b""), ("__meta__.json", b""), ("d/__m__.jpg", b"")])
    assert names(data) == ["__meta__.json", "d/__m__.jpg"]


def files(*names, url="u"):
    return [{"fname": name, "data": name.encode(), "__url__": url} for name in names]


def test_samples_are_neighbours_with_one_key():
    samples = list(group_by_keys(files("a.jpg", "a.CLS", "nodot", "a.txt", "b.jpg")))
    assert samples == [
        {"__key__": "a", "__url__": "u", "jpg": b"a.jpg", "cls": b"a.CLS", "txt": b"a.txt"},
        {"__key__": "b", "__url__": "u", "jpg": b"b.jpg"},
    ]
    across = [*files("a.jpg"), {}, *files("a.cls")]
    assert len(list(group_by_keys(across))) == 2


def test_a_field_that_comes_twice_is_an_error_or_the_first_one_stays():
    twice = [*files("a.jpg"), {"fname": "a.JPG", "data": b"other", "__url__": "u"}, *files("b.jpg")]
    with pytest.raises(ValueError, match="duplicate file name"):
        list(group_by_keys(twice))
    samples = list(group_by_keys(twice, handler=wds.ignore_and_continue))
    assert samples[0]["jpg"] == b"a.jpg" and len(samples) == 2


def test_the_end_of_a_shard_passes_groupers_that_do_not_know_it(tmp_path):
    (tmp_path / "a.tar").write_bytes(WHOLE)
    items = list(wds.tariterators.tar_file_expander([{"url": "u", "stream": io.BytesIO(WHOLE)}]))
    end = items[-1]
    assert end == {} and not end
    assert base_plus_ext(end["fname"]) == (None, None) and end["data"] == b""


def test_selected_and_renamed_files(tmp_path):
    (tmp_path / "a.tar").write_bytes(archive([("a.jpg", b"1"), ("a.cls", b"2")]))
    ds = wds.WebDataset(
        str(tmp_path / "a.tar"),
        shardshuffle=False,
        select_files=lambda name: name.endswith(".label"),
        rename_files=lambda name: name.replace(".cls", ".label"),
    )
    assert [(sample["label"], "jpg" in sample) for sample in ds] == [(b"2", False)]

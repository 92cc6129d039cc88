"""The regular files of a tar archive that arrives as a stream of bytes, compressed or not.

Python's tarfile takes a damaged header, or an end without the mark that archives end with, for the end of the archive.
Here both are errors, of the same class as tarfile's; with `is_lenient` they end the archive as they do there.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

BLOCK = 512

# A file's name, or PAX records, are never as large as this.
META_BYTES_MAX = 1 << 20
MEMBER_BYTES_MAX = 1 << 40

# What is read behind an archive's end: padding, or another archive.
TAIL_BYTES_MAX = 1 << 20

_REGULAR = b"0\x007"
_LINKS_AND_DEVICES = b"123456"


class Member(NamedTuple):
    """A regular file in an archive."""

    name: str
    offset: int
    data: bytes


class Source:
    """A stream of which the first bytes can be looked at, and that gives all bytes it is asked for or its last ones."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._ahead = b""
        self.offset = 0

    def peek(self, size: int) -> bytes:
        self._ahead += self._take(size - len(self._ahead))
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            data = self._ahead + self._stream.read()
            self._ahead = b""
        elif self._ahead:
            data = self._ahead[:size]
            self._ahead = self._ahead[len(data) :]
            data += self._take(size - len(data))
        else:
            data = self._take(size)
        self.offset += len(data)
        return data

    def _take(self, size: int) -> bytes:
        if size <= 0:
            return b""
        data = self._stream.read(size)
        if len(data) == size or not data:
            return data
        # Sockets and raw files may give less than they have.
        parts, left = [data], size - len(data)
        while left and (more := self._stream.read(left)):
            parts.append(more)
            left -= len(more)
        return b"".join(parts)


def regular_members(stream: Any, is_lenient: bool = False) -> Iterator[Member]:
    """The regular files in the archive, in order.

    Raises:
        tarfile.ReadError: for what is no archive, or a damaged or cut one; it says at which byte.
    """
    source = Source(stream)
    inflated = _inflated(source)
    archive = source if inflated is source else Source(inflated)
    try:
        yield from _members(archive, is_lenient)
        if not is_lenient:
            # To the end, so that a checksum there is checked and a process that writes the archive can end by itself.
            archive.read(TAIL_BYTES_MAX)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise tarfile.ReadError(f"the compressed archive is damaged or cut: {error}") from error


def _inflated(source: Source) -> Any:
    begin = source.peek(6)
    if begin.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=source)
    if begin.startswith(b"BZh"):
        return bz2.BZ2File(source)
    if begin == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(source)
    if begin.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(source)
    return source


def _zstd(source: Source) -> Any:
    try:
        from compression import zstd
    except ImportError:
        try:
            import zstandard
        except ImportError as error:
            raise tarfile.ReadError(
                "the archive is compressed with zstd, which takes Python 3.14 or `pip install zstandard`"
            ) from error
        return zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
    return zstd.ZstdFile(source)


def _members(archive: Source, is_lenient: bool) -> Iterator[Member]:
    everywhere: dict[str, str] = {}
    here: dict[str, str] = {}
    long_name: str | None = None
    while True:
        offset = archive.offset
        block = archive.read(BLOCK)
        if block and not block.strip(b"\0"):
            if is_lenient or not (block := _behind_the_end(archive)):
                return
            # Archives that were joined by cat are read on.
            offset = archive.offset - BLOCK
            everywhere = {}
        fault = _fault(block, offset)
        if fault is not None:
            if is_lenient and offset:
                return
            raise tarfile.ReadError(fault)
        kind = block[156:157]
        size = _number(block[124:136], offset)
        if kind in (b"x", b"g", b"L", b"K"):
            data = _data(archive, size, META_BYTES_MAX, offset)
            if kind == b"L":
                long_name = _text(data.rstrip(b"\0"))
            elif kind == b"x":
                here = _records(data, offset)
            elif kind == b"g":
                everywhere |= _records(data, offset)
            continue
        records = {**everywhere, **here}
        name = records.get("path", long_name) or _name(block)
        if "size" in records:
            size = _decimal(records["size"], offset)
        here, long_name = {}, None
        if kind in _LINKS_AND_DEVICES or (kind == b"\0" and name.endswith("/")):
            # They have no data, whatever their size says.
            continue
        if kind == b"S" or any(record.startswith("GNU.sparse") for record in records):
            raise tarfile.ReadError(f"at byte {offset}: {name} is a sparse file; pack the archive without --sparse")
        data = _data(archive, size, MEMBER_BYTES_MAX, offset)
        if kind in _REGULAR:
            yield Member(name, offset, data)


def _fault(block: bytes, offset: int) -> str | None:
    """What is wrong with the block where a header is due."""
    if not block:
        return f"the archive ends at byte {offset} without an end mark: it was cut" if offset else "empty file"
    if len(block) < BLOCK:
        return f"the archive is cut inside the header at byte {offset}: truncated header"
    stored = block[148:156].split(b"\0")[0].strip()
    unsigned = sum(block) - sum(block[148:156]) + 8 * 32
    if stored and all(digit in b"01234567" for digit in stored):
        signed = unsigned - 256 * sum(byte > 127 for byte in block[:148] + block[156:])
        if int(stored, 8) in (unsigned, signed):
            return None
    return f"no tar header at byte {offset}: " + ("the archive is damaged" if offset else "this is no tar archive")


def _behind_the_end(archive: Source) -> bytes:
    """The header of another archive behind an end mark; empty where there is only padding, or what is no archive."""
    for _ in range(TAIL_BYTES_MAX // BLOCK):
        block = archive.read(BLOCK)
        if block.strip(b"\0"):
            return block if len(block) == BLOCK and _fault(block, 1) is None else b""
        if len(block) < BLOCK:
            break
    return b""


def _data(archive: Source, size: int, size_max: int, offset: int) -> bytes:
    if size > size_max:
        raise tarfile.ReadError(
            f"the header at byte {offset} announces {size} bytes, more than the limit of {size_max}"
        )
    data = archive.read(size)
    if len(data) < size:
        raise tarfile.ReadError(
            f"unexpected end of data: the member at byte {offset} has {len(data)} of its {size} bytes"
        )
    padding = -size % BLOCK
    if len(archive.read(padding)) < padding:
        raise tarfile.ReadError(f"unexpected end of data: the padding of the member at byte {offset} is cut")
    return data


def _number(field: bytes, offset: int) -> int:
    if field[0] & 0x80:
        number = int.from_bytes(field, "big") & ((1 << 95) - 1)
    else:
        digits = field.split(b"\0")[0].strip() or b"0"
        if any(digit not in b"01234567" for digit in digits):
            raise tarfile.ReadError(f"the header at byte {offset} has the size {field!r}")
        number = int(digits, 8)
    return number


def _decimal(text: str, offset: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise tarfile.ReadError(f"the header at byte {offset} has the size {text!r}")
    return int(text)


def _records(data: bytes, offset: int) -> dict[str, str]:
    """PAX records: `LENGTH KEY=VALUE\\n`, the length being that of all of it."""
    records, place = {}, 0
    while place < len(data) and data[place] != 0:
        blank = data.find(b" ", place, place + 20)
        length = data[place:blank] if blank > 0 else b""
        if not length.isdigit() or int(length) < 5 or place + int(length) > len(data):
            raise tarfile.ReadError(f"the header at byte {offset} has PAX records that cannot be read")
        key, equals, value = data[blank + 1 : place + int(length) - 1].partition(b"=")
        if not equals:
            raise tarfile.ReadError(f"the header at byte {offset} has a PAX record without '='")
        records[_text(key)] = _text(value)
        place += int(length)
    return records


def _name(block: bytes) -> str:
    name = block[:100].split(b"\0")[0]
    prefix = block[345:500].split(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")

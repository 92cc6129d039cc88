"""Arrays as bytes in webdataset's `ten` format, read and written.

A file is a row of chunks, two for each array: a header and the data. A chunk is the mark `~TenBin~`, the length of its
bytes as a little-endian 64-bit integer, and the bytes, padded to 64. A header is 64-bit integers: dtype and name as
eight letters each, the number of dimensions, and the dimensions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy

MARK = b"~TenBin~"
ALIGNMENT = 64
DIMENSIONS_MAX = 10

# Names of dtypes; `unit32` is how webdataset spells its entry, so that it refuses uint32 and we write it.
_KINDS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def encode_buffer(l: Sequence[numpy.ndarray], infos: Sequence[str] | None = None) -> bytearray:  # noqa: E741
    """Arrays as bytes, each with a name of at most eight letters.

    Raises:
        ValueError: for what is no list, or an array that has no form here.
    """
    if not isinstance(l, (list, tuple)):
        raise ValueError(f"arrays are given as a list, not as {type(l).__name__}: [array] for a single one")
    names = [""] * len(l) if infos is None else list(infos)
    if len(names) != len(l):
        raise ValueError(f"{len(names)} names for {len(l)} arrays; give one for each")
    encoded = bytearray()
    for array, name in zip(l, names):
        array = numpy.ascontiguousarray(array).reshape(numpy.shape(array))
        for chunk in (_header(array, name), array.tobytes()):
            encoded += MARK + struct.pack("<q", len(chunk)) + chunk + bytes(-len(chunk) % ALIGNMENT)
    return encoded


def decode_buffer(buf: bytes, infos: bool | Sequence[str] | None = False) -> Any:
    """The arrays in `buf`; with `infos=True` their names as well.

    Raises:
        ValueError: if the bytes are damaged.
    """
    chunks = _chunks(memoryview(buf))
    if len(chunks) % 2:
        raise ValueError("an array has a header and no data: the bytes are cut")
    arrays, names = [], []
    for header, data in zip(chunks[::2], chunks[1::2]):
        dtype, name, shape = _read_header(header)
        if dtype.itemsize * _product(shape) != len(data):
            raise ValueError(f"an array of {shape} {dtype} has {len(data)} bytes")
        arrays.append(numpy.frombuffer(data, dtype).reshape(shape))
        names.append(name)
    if not infos:
        return arrays
    if infos is not True and list(infos) != names:
        raise ValueError(f"the arrays are named {names}, not {list(infos)}")
    return (arrays, names) if infos is True else arrays


def save(fname: str, *args: numpy.ndarray, infos: Sequence[str] | None = None, nocheck: bool = False) -> None:
    """Writes arrays to a file, whose name ends in `.ten`."""
    _check_name(fname, nocheck)
    with open(fname, "wb") as stream:
        write(stream, args, infos)


def load(fname: str, infos: Any = False, nocheck: bool = False) -> Any:
    """Reads the arrays of a file."""
    _check_name(fname, nocheck)
    with open(fname, "rb") as stream:
        return read(stream, infos=infos)


def write(stream: Any, l: Sequence[numpy.ndarray], infos: Sequence[str] | None = None) -> None:  # noqa: E741
    """Writes arrays to a stream."""
    stream.write(encode_buffer(list(l), infos))


def read(stream: Any, n: int | None = None, infos: Any = False) -> Any:
    """Reads the arrays of a stream, the first `n` of them if given."""
    arrays = decode_buffer(stream.read(), infos)
    return arrays if n is None or infos is True else arrays[:n]


def _header(array: numpy.ndarray, name: str) -> bytes:
    kind = array.dtype.str[1:]
    if kind not in _KINDS:
        raise ValueError(f"{array.dtype} has no form here; known are {', '.join(_KINDS)}")
    if array.dtype.byteorder == ">":
        raise ValueError("the numbers are big-endian; array.astype(array.dtype.newbyteorder('<')) turns them")
    if array.ndim >= DIMENSIONS_MAX:
        raise ValueError(f"{array.ndim} dimensions are too many; fewer than {DIMENSIONS_MAX} are possible")
    return struct.pack(f"<8s8s{1 + array.ndim}q", kind.encode(), _letters(name), array.ndim, *array.shape)


def _letters(name: str) -> bytes:
    letters = name.encode("ascii")
    if len(letters) > 8:
        raise ValueError(f"the name {name!r} is too long; eight letters are possible")
    return letters


def _read_header(header: memoryview) -> tuple[numpy.dtype, str, tuple[int, ...]]:
    if len(header) < 24:
        raise ValueError("the header of an array is cut")
    kind, name, rank = struct.unpack_from("<8s8sq", header)
    kind = kind.rstrip(b"\0").decode("ascii", "replace")
    if kind not in _KINDS or not 0 <= rank < DIMENSIONS_MAX or len(header) < 24 + 8 * rank:
        raise ValueError(f"the header of an array cannot be read: dtype {kind!r}, {rank} dimensions")
    shape = struct.unpack_from(f"<{rank}q", header, 24)
    if any(side < 0 for side in shape):
        raise ValueError(f"an array has the shape {shape}")
    return numpy.dtype(kind), name.rstrip(b"\0").decode("ascii", "replace"), shape


def _chunks(buf: memoryview) -> list[memoryview]:
    chunks, place = [], 0
    while place < len(buf):
        if len(buf) - place < 16 or buf[place : place + 8] != MARK:
            raise ValueError(f"no chunk begins at byte {place}: the bytes are damaged or cut")
        (length,) = struct.unpack_from("<q", buf, place + 8)
        place += 16
        if not 0 <= length <= len(buf) - place:
            raise ValueError(f"the chunk at byte {place - 16} has {length} bytes, and {len(buf) - place} are left")
        chunks.append(buf[place : place + length])
        place += length + -length % ALIGNMENT
    return chunks


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def _check_name(fname: str, nocheck: bool) -> None:
    if not nocheck and not fname.endswith(".ten"):
        raise ValueError(f"{fname} should end in .ten; nocheck=True lets it pass")

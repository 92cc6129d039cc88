"""Writes samples as shards: one archive, or one after the other.

Members are plain ustar with whole seconds, so that they have one block of header each and every reader takes them; a
name that does not fit has a PAX header. A file appears under its name when it is complete.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from typing import Any

from ..errors import DataWarning
from .encoders import (
    cbor_dumps,
    default_handlers,
    encode_based_on_extension,
    encode_based_on_extension1,
    imageencoder,
    make_encoder,
    mp_dumps,
    numpy_dumps,
    numpy_npz_dumps,
    tenbin_dumps,
    torch_dumps,
)
from .gopen import gopen, local_path

__all__ = [
    "ShardWriter",
    "TarWriter",
    "cbor_dumps",
    "default_handlers",
    "encode_based_on_extension",
    "encode_based_on_extension1",
    "imageencoder",
    "make_encoder",
    "mp_dumps",
    "numpy_dumps",
    "numpy_npz_dumps",
    "tenbin_dumps",
    "torch_dumps",
]


class TarWriter:
    """Writes samples, dicts with a `__key__`, into one archive.

    Args:
        fileobj: a name or URL, or a stream.
        user, group, mode: of the members.
        compress: True or "gz", "bz2", "xz"; by the name's end unless given, False for none.
        encoder: from a sample to one of bytes: True by extension, a dict of functions by extension, a function, or
            False where fields are bytes.
        keep_meta: write fields whose names begin with `_` as well.
        mtime: seconds that are written as each member's time; the present unless given.
        format: "USTAR_FORMAT", "PAX_FORMAT" or "GNU_FORMAT"; unless given, ustar where the name fits and PAX elsewhere.
    """

    def __init__(
        self,
        fileobj: Any,
        user: str = "bigdata",
        group: str = "bigdata",
        mode: int = 0o0444,
        compress: bool | str | None = None,
        encoder: Any = True,
        keep_meta: bool = False,
        mtime: float | None = None,
        format: str | int | None = None,
    ) -> None:
        self.user = user
        self.group = group
        self.mode = mode
        self.compress = compress
        self.keep_meta = keep_meta
        self.mtime = mtime
        self.encoder = make_encoder(encoder)
        self.format = _format(format)
        if isinstance(fileobj, os.PathLike):
            fileobj = os.fspath(fileobj)
        tarmode = self.tarmode(fileobj, compress)
        self.own_fileobj = _create(fileobj) if isinstance(fileobj, str) else None
        self.stream = fileobj if self.own_fileobj is None else self.own_fileobj
        self.tarstream = tarfile.open(fileobj=self.stream, mode=tarmode)  # noqa: SIM115
        self._keys: set[str] = set()
        self._told_of_dots = False

    def write(self, obj: dict[str, Any]) -> int:
        """Writes a sample, its fields sorted by name; the bytes of its fields together.

        Raises:
            ValueError: for a sample without a key or with one that was written before, or a field that is no bytes.
        """
        obj = self.encoder(obj)
        if "__key__" not in obj:
            raise ValueError(f"a sample needs a __key__, the name of its files; this one has {list(obj)}")
        key = obj["__key__"]
        if key in self._keys:
            raise ValueError(f"a sample with the key '{key}' was written before; readers would make one of both")
        self._look_for_dots(key)
        fields = {name: obj[name] for name in sorted(obj) if name != "__key__" and (self.keep_meta or name[0] != "_")}
        for name, value in fields.items():
            if isinstance(value, str) and name.startswith("_"):
                fields[name] = value.encode("utf-8")
            elif not isinstance(value, (bytes, bytearray, memoryview)):
                raise ValueError(
                    f"'{name}' is {type(value).__name__} after encoding, and no bytes; encoder=True encodes"
                )
        self._keys.add(key)
        for name, value in fields.items():
            self._add(f"{key}.{name}", bytes(value))
        return sum(len(value) for value in fields.values())

    def _add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        member.mtime = int(time.time() if self.mtime is None else self.mtime)
        member.mode = self.mode
        member.uname = self.user
        member.gname = self.group
        self.tarstream.format = _fitting(member) if self.format is None else self.format
        self.tarstream.addfile(member, io.BytesIO(data))

    def _look_for_dots(self, key: str) -> None:
        if not self._told_of_dots and "." in key.rpartition("/")[2]:
            self._told_of_dots = True
            warnings.warn(
                f"the key '{key}' has a dot in it: readers take what is behind the first dot for the field",
                DataWarning,
                stacklevel=4,
            )

    def close(self) -> None:
        """Ends the archive."""
        self.tarstream.close()
        if self.own_fileobj is not None:
            self.own_fileobj.close()
            self.own_fileobj = None

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(self, kind: Any, *exception: Any) -> None:
        if kind is not None and isinstance(self.own_fileobj, _Draft):
            # Half an archive is not left behind under a whole one's name.
            self.tarstream.close()
            self.own_fileobj.discard()
            self.own_fileobj = None
            return
        self.close()

    @staticmethod
    def tarmode(fileobj: Any, compress: bool | str | None = None) -> str:
        """The mode of `tarfile.open` for a name and what was asked for."""
        if compress is True:
            return "w|gz"
        if compress is False:
            return "w|"
        if compress in ("gz", "bz2", "xz"):
            return f"w|{compress}"
        if compress is not None:
            raise ValueError(f"compress={compress!r} is not known; it is 'gz', 'bz2', 'xz', True for gz, or False")
        ending = next((end for end in ("gz", "bz2", "xz") if isinstance(fileobj, str) and fileobj.endswith(end)), "")
        return f"w|{ending}"


class ShardWriter:
    """Writes samples into one archive after the other.

    Args:
        pattern: name of the archives, with `%06d` for the number.
        maxcount: samples in an archive.
        maxsize: bytes of its fields.
        post: called with the name of each archive once it is complete.
        start_shard: the first number.
        verbose: whether each archive is told of on stderr.
        opener: of a name, a stream.
        kw: of `TarWriter`.
    """

    def __init__(
        self,
        pattern: str | os.PathLike,
        maxcount: int = 100000,
        maxsize: float = 3e9,
        post: Callable[[str], Any] | None = None,
        start_shard: int = 0,
        verbose: int = 1,
        opener: Callable[[str], Any] | None = None,
        **kw: Any,
    ) -> None:
        self.pattern = os.fspath(pattern)
        try:
            differ = self.pattern % 0 != self.pattern % 1
        except (TypeError, ValueError):
            differ = False
        if not differ:
            raise ValueError(f"the pattern {self.pattern!r} has no place for a number; write train-%06d.tar")
        self.maxcount = maxcount
        self.maxsize = maxsize
        self.post = post
        self.shard = start_shard
        self.verbose = verbose
        self.opener = opener
        self.kw = kw
        self.tarstream: TarWriter | None = None
        self.fname: str | None = None
        self.total = self.count = self.size = 0
        self.next_stream()

    def next_stream(self) -> None:
        """Completes the archive and begins the next one."""
        self.finish()
        self.fname = self.pattern % self.shard
        if self.verbose:
            print(f"# writing {self.fname} {self.count} {self.size / 1e9:.1f} GB {self.total}", file=sys.stderr)
        self.shard += 1
        self.tarstream = TarWriter(self.opener(self.fname) if self.opener else self.fname, **self.kw)
        self.count = self.size = 0

    def write(self, obj: dict[str, Any]) -> None:
        """Writes a sample."""
        if self.tarstream is None or self.count >= self.maxcount or self.size >= self.maxsize:
            self.next_stream()
        self.size += self.tarstream.write(obj)
        self.count += 1
        self.total += 1

    def finish(self) -> None:
        """Completes the archive."""
        if self.tarstream is not None:
            self.tarstream.close()
            self.tarstream = None
            if callable(self.post):
                self.post(self.fname)

    def close(self) -> None:
        """Completes the last archive."""
        self.finish()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *exception: Any) -> None:
        if exception[0] is not None and self.tarstream is not None:
            self.tarstream.__exit__(*exception)
            self.tarstream = None
            return
        self.close()


class _Draft:
    """A file that is written under a name of its own and gets its real one when it is closed."""

    def __init__(self, path: str) -> None:
        folder, name = os.path.split(path)
        self._path = path
        self._temporary = os.path.join(folder, f".{name}.{os.getpid()}.temp")
        self._stream = open(self._temporary, "wb")  # noqa: SIM115

    def write(self, data: Any) -> int:
        return self._stream.write(data)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()
        os.replace(self._temporary, self._path)

    def discard(self) -> None:
        self._stream.close()
        os.unlink(self._temporary)


def _create(name: str) -> Any:
    path = local_path(name)
    if path is None or name == "-":
        return gopen(name, "wb")
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        is_file = True
    # Devices and pipes are written to, and links followed.
    return _Draft(os.path.realpath(path)) if is_file else open(path, "wb")


def _format(format: str | int | None) -> int | None:
    if format is None or isinstance(format, int):
        return format
    if format not in ("USTAR_FORMAT", "PAX_FORMAT", "GNU_FORMAT"):
        raise ValueError(f"format={format!r} is not known; it is 'USTAR_FORMAT', 'PAX_FORMAT' or 'GNU_FORMAT'")
    return getattr(tarfile, format)


def _fitting(member: tarfile.TarInfo) -> int:
    try:
        member.tobuf(tarfile.USTAR_FORMAT)
    except ValueError:
        return tarfile.PAX_FORMAT
    # ustar knows no letters beyond ASCII.
    return tarfile.USTAR_FORMAT if member.name.isascii() else tarfile.PAX_FORMAT

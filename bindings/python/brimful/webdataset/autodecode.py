"""Decodes the fields of samples: each goes through a list of handlers until one has a value for it.

A handler is a function of `.extension` and bytes that returns a value, or None for fields of others. Images and values
by extension are in modules of their own.
"""

from __future__ import annotations

import functools
import gzip
import io
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from .images import IMAGE_EXTENSIONS, ImageHandler, imagehandler, imagespecs
from .values import (
    basichandlers,
    cbor_loads,
    decoders,
    extension,
    msgpack_loads,
    npy_loads,
    npz_loads,
    tenbin_loads,
    torch_loads,
    unpickle_loads,
)

__all__ = [
    "IMAGE_EXTENSIONS",
    "Continue",
    "Decoder",
    "DecodingError",
    "ImageHandler",
    "basichandlers",
    "call_extension_handler",
    "cbor_loads",
    "decoders",
    "default_decoder",
    "default_post_handlers",
    "default_pre_handlers",
    "gzfilter",
    "handle_extension",
    "imagehandler",
    "imagespecs",
    "msgpack_loads",
    "npy_loads",
    "npz_loads",
    "pytorch_weights_only",
    "tenbin_loads",
    "torch_audio",
    "torch_loads",
    "torch_video",
    "unpickle_loads",
]

pytorch_weights_only = os.environ.get("WDS_PYTORCH_WEIGHTS_ONLY", "0") == "1"

# Above this a gzip field is taken for a bomb.
GZIP_FIELD_BYTES_MAX = 1 << 31

Handler = Callable[[str, bytes], Any]


class Continue:
    """Given back by a handler: go on with this key and these bytes."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key = key
        self.data = data


def gzfilter(key: str, data: bytes) -> Continue | None:
    """Decompresses fields whose extension ends in `.gz`, and goes on with what is before that."""
    if not key.endswith(".gz"):
        return None
    with gzip.open(io.BytesIO(data)) as stream:
        plain = stream.read(GZIP_FIELD_BYTES_MAX + 1)
    if len(plain) > GZIP_FIELD_BYTES_MAX:
        raise ValueError(f"the field {key} inflates to more than {GZIP_FIELD_BYTES_MAX} bytes")
    return Continue(key[:-3], plain)


def call_extension_handler(key: str, data: bytes, f: Callable[[bytes], Any], extensions: Iterable[str]) -> Any:
    """`f(data)` if the field's last parts are one of `extensions`, else None."""
    parts = key.lower().split(".")
    for wanted in extensions:
        tail = wanted.split(".")
        if parts[-len(tail) :] == tail:
            return f(data)
    return None


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Handler:
    """A handler that calls `f` for fields with certain extensions.

    Args:
        extensions: with blanks between them, in any case; `seg.png` fits `a.seg.png` and not `a.png`.
        f: called with the bytes.
    """
    return functools.partial(call_extension_handler, f=f, extensions=extensions.lower().split())


def torch_video(key: str, data: bytes) -> Any:
    """Frames, sound and facts of a video, through torchvision."""
    if extension(key) not in ("mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"):
        return None
    import torchvision.io

    return _through_file(key, data, functools.partial(torchvision.io.read_video, pts_unit="sec"))


def torch_audio(key: str, data: bytes) -> Any:
    """Sound and its rate, through torchaudio."""
    if extension(key) not in ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"):
        return None
    import torchaudio

    return _through_file(key, data, torchaudio.load)


default_pre_handlers: list[Handler] = [gzfilter]
default_post_handlers: list[Handler] = [basichandlers]


class DecodingError(Exception):
    """A field that cannot be decoded.

    Attributes:
        url: the shard.
        key: the sample.
        k: the field.
        sample: all fields.
    """

    def __init__(self, url: Any = None, key: Any = None, k: Any = None, sample: Any = None) -> None:
        super().__init__(url, key, k)
        self.url = url
        self.key = key
        self.k = k
        self.sample = sample

    def __str__(self) -> str:
        cause = f": {self.__cause__}" if self.__cause__ is not None else ""
        return f"field '{self.k}' of sample '{self.key}' in {self.url} cannot be decoded{cause}"


class Decoder:
    """Decodes whole samples.

    Args:
        handlers: tried in order.
        pre: tried before them; `[gzfilter]` unless given.
        post: tried after them; `[basichandlers]` unless given.
        only: fields to decode, with blanks between them or as a list; the others stay as they are.
        partial: leave fields alone that are no bytes, instead of an error.
    """

    def __init__(
        self,
        handlers: list[Handler],
        pre: list[Handler] | None = None,
        post: list[Handler] | None = None,
        only: str | Iterable[str] | None = None,
        partial: bool = False,
    ) -> None:
        assert isinstance(handlers, list), f"handlers come as a list, not as {type(handlers).__name__}"
        self.pre = default_pre_handlers if pre is None else pre
        self.given = handlers
        self.post = default_post_handlers if post is None else post
        self.handlers = [*self.pre, *self.given, *self.post]
        for handler in self.handlers:
            assert callable(handler), f"{handler!r} decodes nothing: a handler is a spec or a function of key and data"
        self.only = set(only.split() if isinstance(only, str) else only) if only is not None else None
        self.partial = partial

    def decode1(self, key: str, data: bytes) -> Any:
        """The value of one field, or its bytes where no handler has one."""
        key = "." + key
        for handler in self.handlers:
            value = handler(key, data)
            if isinstance(value, Continue):
                key, data = value.key, value.data
            elif value is not None:
                return value
        return data

    def decode(self, sample: dict[str, Any]) -> dict[str, Any]:
        """A sample with its fields decoded; names that begin with `__` are texts."""
        decoded = {}
        for name, value in list(sample.items()):
            try:
                decoded[name] = self._field(name, value)
            except Exception as error:
                place = {"url": sample.get("__url__"), "key": sample.get("__key__"), "k": name}
                raise DecodingError(**place, sample=sample) from error
        return decoded

    def _field(self, name: str, value: Any) -> Any:
        if name.startswith("__"):
            if isinstance(value, bytes):
                # What is no text stays as it is.
                try:
                    return value.decode("utf-8")
                except UnicodeDecodeError:
                    return value
            return value
        if self.only is not None and name not in self.only:
            return value
        assert value is not None, f"the field '{name}' is None"
        if isinstance(value, bytes):
            return self.decode1(name, value)
        assert self.partial, (
            f"the field '{name}' is {type(value).__name__} and no bytes: was it decoded before? partial=True leaves it"
        )
        return value

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(sample, dict), (
            f"samples to decode are dicts, not {type(sample).__name__}: decode comes earlier"
        )
        return self.decode(sample)

    def __repr__(self) -> str:
        return f"Decoder({self.given!r})"


default_decoder = Decoder(default_pre_handlers + default_post_handlers)


def _through_file(key: str, data: bytes, load: Callable[[str], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"file.{extension(key)}")
        with open(path, "wb") as stream:
            stream.write(data)
        return load(path)

"""From values to the bytes of fields, by extension: what `autodecode` reads, and some more."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy

from . import tenbin
from .values import extension

Encoder = Callable[[Any], Any]

# How far from [0, 1] the numbers of a picture may be before they are taken for something else.
SLACK = 0.001


def imageencoder(image: Any, format: str = "PNG") -> bytes:
    """A picture as a file.

    Args:
        image: a PIL image, or an array `[H, W]`, `[H, W, 1]` or `[H, W, 3]` of `uint8`, or of floats in [0, 1].
        format: of the file, as Pillow names it or as an extension; JPEG and TIFF have quality 100.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "pictures are encoded by Pillow: `pip install pillow`, or give the bytes of a file"
        ) from error
    if isinstance(image, numpy.ndarray):
        image = Image.fromarray(_pixels(image))
    assert isinstance(image, Image.Image), f"a picture is an array or a PIL image, not {type(image).__name__}"
    name = {"JPG": "JPEG", "IMG": "PPM", "IMAGE": "PPM", "PBM": "PPM", "PGM": "PPM", "TIF": "TIFF"}.get(
        format.upper(), format.upper()
    )
    buffer = io.BytesIO()
    image.save(buffer, format=name, **({"quality": 100} if name in ("JPEG", "TIFF") else {}))
    return buffer.getvalue()


def _pixels(image: numpy.ndarray) -> numpy.ndarray:
    if image.dtype.kind == "f":
        low, high = float(numpy.amin(image)), float(numpy.amax(image))
        if low <= -SLACK or high >= 1 + SLACK:
            raise ValueError(
                f"image values out of range: {low} to {high}; floats go from 0 to 1, and uint8 from 0 to 255"
            )
        image = (numpy.clip(image, 0.0, 1.0) * 255.0).astype(numpy.uint8)
    assert image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (1, 3)), (
        f"a picture is [H, W], [H, W, 1] or [H, W, 3], not {list(image.shape)}"
    )
    return image[:, :, 0] if image.shape[2:] == (1,) else image


def number_dumps(value: Any) -> bytes:
    """A number or name as text; None would read back as the word None, and is refused."""
    if value is None:
        raise ValueError("the label is None; leave the field out, or write a number that means it, such as -1")
    return str(value).encode("ascii")


def text_dumps(value: str) -> bytes:
    return value.encode("utf-8")


def json_dumps(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8")


def torch_dumps(data: Any) -> bytes:
    """What torch.save writes."""
    import torch

    buffer = io.BytesIO()
    torch.save(data, buffer)
    return buffer.getvalue()


def numpy_dumps(data: numpy.ndarray) -> bytes:
    """An array as an `npy` file; objects are refused, which nobody could read back."""
    buffer = io.BytesIO()
    numpy.lib.format.write_array(buffer, numpy.asanyarray(data), allow_pickle=False)
    return buffer.getvalue()


def numpy_npz_dumps(data: dict[str, numpy.ndarray]) -> bytes:
    """Arrays by name as a compressed `npz` file."""
    assert isinstance(data, dict), f"npz takes a dict of arrays, not {type(data).__name__}; npy takes an array"
    for name, array in data.items():
        assert isinstance(name, str) and isinstance(array, numpy.ndarray), f"npz takes arrays by name; {name!r} is none"
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **data)
    return buffer.getvalue()


def tenbin_dumps(x: Any) -> bytes:
    """An array or a list of arrays as a `ten` file."""
    return bytes(tenbin.encode_buffer(x if isinstance(x, list) else [x]))


def mp_dumps(x: Any) -> bytes:
    return _package("msgpack", "MessagePack").packb(x)


def cbor_dumps(x: Any) -> bytes:
    return _package("cbor", "CBOR").dumps(x)


class _ImageEncoder:
    """Writes pictures in one format; an object so that writers can be pickled."""

    def __init__(self, format: str) -> None:
        self.format = format

    def __call__(self, image: Any) -> bytes:
        return imageencoder(image, self.format)


default_handlers: dict[str, Encoder] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), number_dumps),
    **dict.fromkeys(("txt", "text", "transcript", "html", "htm"), text_dumps),
    **dict.fromkeys(("pyd", "pickle"), pickle.dumps),
    "pth": torch_dumps,
    "npy": numpy_dumps,
    "npz": numpy_npz_dumps,
    **dict.fromkeys(("ten", "tenbin", "tb"), tenbin_dumps),
    **dict.fromkeys(("json", "jsn"), json_dumps),
    **dict.fromkeys(("mp", "msgpack", "msg"), mp_dumps),
    "cbor": cbor_dumps,
    **dict.fromkeys(("jpg", "jpeg", "img", "image"), _ImageEncoder("jpg")),
    **{name: _ImageEncoder(name) for name in ("png", "pbm", "pgm", "ppm", "tiff", "tif")},
}


def encode_based_on_extension1(data: Any, tname: str, handlers: dict[str, Encoder]) -> Any:
    """The bytes of one field. Texts and bytes are written as they are; `.gz` compresses."""
    if tname.startswith("_"):
        if not isinstance(data, str):
            raise ValueError(f"'{tname}' begins with _ and is a text about the sample, not {type(data).__name__}")
        return data
    name = tname.removesuffix(".gz")
    if isinstance(data, str):
        data = data.encode("utf-8")
    elif not isinstance(data, bytes):
        handler = handlers.get(extension(name).lower())
        if handler is None:
            raise ValueError(
                f"no handler found for '{tname}': give bytes or a text, another extension (known are "
                f"{', '.join(sorted(handlers))}), or encoder={{'{extension(name)}': function}}"
            )
        data = handler(data)
    return gzip.compress(data) if name != tname else data


def encode_based_on_extension(sample: dict[str, Any], handlers: dict[str, Encoder]) -> dict[str, Any]:
    """A sample with its fields as bytes."""
    return {name: encode_based_on_extension1(value, name, handlers) for name, value in sample.items()}


class _ByExtension:
    """Encodes samples by a table; an object so that writers can be pickled."""

    def __init__(self, handlers: dict[str, Encoder]) -> None:
        self.handlers = handlers

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return encode_based_on_extension(sample, self.handlers)


def _as_it_is(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def make_encoder(spec: bool | None | dict[str, Encoder] | Encoder) -> Encoder:
    """What a writer's `encoder` means: True for `default_handlers`, a table, a function of samples, or nothing."""
    if spec is False or spec is None:
        return _as_it_is
    if spec is True:
        return _ByExtension(default_handlers)
    if isinstance(spec, dict):
        return _ByExtension(spec)
    if callable(spec):
        return spec
    raise ValueError(f"encoder={spec!r} is not known; it is True, False, a dict of functions, or a function of samples")


def _package(name: str, what: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} is written by the package {name}: `pip install {name}`, or write json") from error

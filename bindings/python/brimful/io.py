"""Single images: bytes in, pixels out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from . import _native

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["decode_image"]


def decode_image(data: bytes, mode: str = "RGB", decoder: str = "auto", *, exif: bool = False) -> NDArray[numpy.uint8]:
    """Decodes a JPEG, PNG, WebP, GIF, BMP, TIFF or PNM image.

    Args:
        data: the file's content, as `bytes` or anything with a buffer.
        mode: "RGB" for three channels, "L" for one.
        decoder: what decodes JPEG: "auto", "baseline", "turbo" or "zune".
        exif: whether the picture is turned upright as its EXIF orientation says.

    Returns:
        `[height, width, channels]`, `uint8`, contiguous.

    Raises:
        DecodeError: if the bytes are no image, or a damaged or cut one.
        InvalidOptionError: for a mode or decoder that does not exist.
        UnsupportedError: for a decoder that this build does not have.
    """
    if not isinstance(data, (bytes, bytearray)):
        data = bytes(memoryview(data))
    return numpy.from_dlpack(_native.decode_image(data, mode=mode, decoder=decoder, exif=exif))

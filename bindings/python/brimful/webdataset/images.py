"""Pictures as NumPy arrays, torch tensors or PIL images, as a spec such as "rgb8" or "pil" says; Pillow decodes them.

The native decoder is not called here: a pipeline that it can run is recognised as a whole, in `recognition`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy

from .values import extension

# A spec to container, element and colours.
imagespecs: dict[str, tuple[str, str | None, str]] = {
    **{
        prefix + colours + suffix: (container, element, colours)
        for prefix, container in (("", "numpy"), ("torch", "torch"))
        for suffix, element in (("8", "uint8"), ("", "float"))
        for colours in ("l", "rgb", "rgba")
    },
    "torch": ("torch", "float", "rgb"),
    "pil": ("pil", None, "rgb"),
    **{f"pil{colours}": ("pil", None, colours) for colours in ("l", "rgb", "rgba")},
}

# Fields with these extensions go through an image decoder.
IMAGE_EXTENSIONS = [
    "blp",
    "bmp",
    "dib",
    "bufr",
    "cur",
    "pcx",
    "dcx",
    "dds",
    "ps",
    "eps",
    "fit",
    "fits",
    "fli",
    "flc",
    "ftc",
    "ftu",
    "gbr",
    "gif",
    "grib",
    "h5",
    "hdf",
    "png",
    "apng",
    "jp2",
    "j2k",
    "jpc",
    "jpf",
    "jpx",
    "j2c",
    "icns",
    "ico",
    "im",
    "iim",
    "tif",
    "tiff",
    "jfif",
    "jpe",
    "jpg",
    "jpeg",
    "mpg",
    "mpeg",
    "msp",
    "pcd",
    "pxr",
    "pbm",
    "pgm",
    "ppm",
    "pnm",
    "psd",
    "bw",
    "rgb",
    "rgba",
    "sgi",
    "ras",
    "tga",
    "icb",
    "vda",
    "vst",
    "webp",
    "wmf",
    "emf",
    "xbm",
    "xpm",
]


class ImageHandler:
    """Decodes fields with image extensions.

    Args:
        imagespec: `l`, `rgb` or `rgba` for `float32` in [0, 1], with `8` behind for `uint8`: arrays `[H, W]` or
            `[H, W, C]`; with `torch` before it tensors `[H, W]` or `[C, H, W]`; with `pil` before it PIL images.
        extensions: which fields.
    """

    def __init__(self, imagespec: str, extensions: Iterable[str] = IMAGE_EXTENSIONS) -> None:
        if imagespec not in imagespecs:
            raise ValueError(f"Unknown imagespec: {imagespec!r}; known are {', '.join(imagespecs)}")
        self.imagespec = imagespec
        self.extensions = set(extensions)

    def __call__(self, key: str, data: bytes) -> Any:
        if extension(key).lower() not in self.extensions:
            return None
        container, element, colours = imagespecs[self.imagespec]
        image = _open(data).convert(colours.upper())
        return image if container == "pil" else as_array(numpy.asarray(image), container, element)

    def __repr__(self) -> str:
        return f"ImageHandler({self.imagespec!r})"


def imagehandler(imagespec: str, extensions: Iterable[str] = IMAGE_EXTENSIONS) -> ImageHandler:
    """An `ImageHandler`."""
    return ImageHandler(imagespec, extensions)


def as_array(pixels: numpy.ndarray, container: str, element: str | None) -> Any:
    """Pixels `[H, W]` or `[H, W, C]` of `uint8` in the container and with the element of a spec."""
    if element == "float":
        pixels = pixels.astype(numpy.float32) / 255.0
    if container == "numpy":
        return pixels
    import torch

    return torch.from_numpy((pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)).copy())


def _open(data: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("pictures are decoded by Pillow, which cannot be imported: `pip install pillow`") from error
    image = Image.open(io.BytesIO(data))
    image.load()
    return image

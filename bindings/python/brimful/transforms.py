"""Image transforms under torchvision's names, with its parameters, defaults and reprs.

They hold arguments and do nothing by themselves: `brimful.ShardDataset` hands them to the native side, which resolves
them before an image is decoded. torchvision's own objects are accepted in their place.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from .errors import InvalidOptionError

__all__ = [
    "CenterCrop",
    "Compose",
    "ConvertImageDtype",
    "InterpolationMode",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "Transform",
]


class InterpolationMode(enum.Enum):
    """The filter of a resize."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Transform:
    """Base of all transforms: a name and arguments."""

    def spec(self) -> dict[str, Any]:
        """The transform as the native side reads it."""
        return {"name": type(self).__name__, **self._arguments()}

    def _arguments(self) -> dict[str, Any]:
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transform) and self.spec() == other.spec()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = transforms

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


class RandomResizedCrop(Transform):
    """A crop of random area and aspect ratio, resized to `size`."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation="bilinear", antialias=True):
        self.size = _pair(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation_mode(interpolation)
        self.antialias = antialias

    def _arguments(self):
        return {
            "size": list(self.size),
            "scale": list(self.scale),
            "ratio": list(self.ratio),
            "interpolation": self.interpolation.value,
            "antialias": self.antialias,
        }

    def __repr__(self):
        scale = tuple(round(s, 4) for s in self.scale)
        ratio = tuple(round(r, 4) for r in self.ratio)
        return (
            f"{type(self).__name__}(size={self.size}, scale={scale}, ratio={ratio}"
            f", interpolation={self.interpolation.value}, antialias={self.antialias})"
        )


class RandomCrop(Transform):
    """A crop of `size` at a random place."""

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        self.size = _pair(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def _arguments(self):
        return {
            "size": list(self.size),
            "padding": numbers(self.padding),
            "pad_if_needed": self.pad_if_needed,
            "fill": numbers(self.fill),
            "padding_mode": self.padding_mode,
        }

    def __repr__(self):
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


class CenterCrop(Transform):
    """The middle of the image; a side that is too short is padded with 0."""

    def __init__(self, size):
        self.size = _pair(size)

    def _arguments(self):
        return {"size": list(self.size)}

    def __repr__(self):
        return f"{type(self).__name__}(size={self.size})"


class Resize(Transform):
    """A resize of the whole image: a number is the shorter side, a pair is height and width."""

    def __init__(self, size, interpolation="bilinear", max_size=None, antialias=True):
        if not (size is None or isinstance(size, int) or (isinstance(size, Sequence) and len(size) in (1, 2))):
            raise TypeError(f"size is a number, one or two numbers, or None, not {size!r}")
        self.size = size
        self.interpolation = interpolation_mode(interpolation)
        self.max_size = max_size
        self.antialias = antialias

    def _arguments(self):
        return {
            "size": numbers(self.size),
            "interpolation": self.interpolation.value,
            "max_size": self.max_size,
            "antialias": self.antialias,
        }

    def __repr__(self):
        return (
            f"{type(self).__name__}(size={self.size}, interpolation={self.interpolation.value}"
            f", max_size={self.max_size}, antialias={self.antialias})"
        )


class Pad(Transform):
    """Borders around the image."""

    def __init__(self, padding, fill=0, padding_mode="constant"):
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def _arguments(self):
        return {"padding": numbers(self.padding), "fill": numbers(self.fill), "padding_mode": self.padding_mode}

    def __repr__(self):
        return f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class RandomHorizontalFlip(Transform):
    """Swaps left and right with probability `p`."""

    def __init__(self, p=0.5):
        self.p = p

    def _arguments(self):
        return {"p": self.p}

    def __repr__(self):
        return f"{type(self).__name__}(p={self.p})"


class RandomVerticalFlip(RandomHorizontalFlip):
    """Swaps top and bottom with probability `p`."""


class ToTensor(Transform):
    """`float32` in [0, 1]: divided by 255."""


class PILToTensor(Transform):
    """A tensor of `uint8`, numbers as they are."""


class ToImage(Transform):
    """A tensor of `uint8`, numbers as they are."""


class ConvertImageDtype(Transform):
    """Another dtype; to floating point it divides by 255."""

    def __init__(self, dtype="float32"):
        self.dtype = dtype_name(dtype)

    def _arguments(self):
        return {"dtype": self.dtype}


class ToDtype(Transform):
    """Another dtype; to floating point it multiplies by 1/255 if `scale`."""

    def __init__(self, dtype, scale=False):
        self.dtype = dtype_name(dtype)
        self.scale = scale

    def _arguments(self):
        return {"dtype": self.dtype, "scale": self.scale}

    def __repr__(self):
        return f"{type(self).__name__}(scale={self.scale})"


class Normalize(Transform):
    """Subtracts `mean`, then divides by `std`, a value for each channel."""

    def __init__(self, mean, std, inplace=False):
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def _arguments(self):
        return {"mean": [float(x) for x in _sequence(self.mean)], "std": [float(x) for x in _sequence(self.std)]}

    def __repr__(self):
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


def interpolation_mode(value: Any) -> InterpolationMode:
    """The filter that a word, torchvision's enum or a number of Pillow's means."""
    value = getattr(value, "value", value)
    if isinstance(value, int):
        value = _PIL_FILTERS.get(value, value)
    try:
        return InterpolationMode(value)
    except ValueError:
        words = ", ".join(mode.value for mode in InterpolationMode)
        raise InvalidOptionError(f"interpolation {value!r} is not served; the filters are {words}") from None


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of torch or NumPy, or of one given by name."""
    if isinstance(dtype, type):
        return dtype.__name__
    return str(dtype).rsplit(".", 1)[-1]


def numbers(value: Any) -> Any:
    """A number or None as it is, a sequence as a list."""
    return value if value is None or isinstance(value, (int, float)) else list(value)


def _pair(size: Any) -> tuple[int, int]:
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) not in (1, 2):
        raise InvalidOptionError(f"size is a number or height and width, not {size!r}")
    return (int(sizes[0]), int(sizes[-1]))


def _sequence(value: Any) -> list:
    tolist = getattr(value, "tolist", None)
    value = tolist() if tolist is not None else value
    return [value] if isinstance(value, (int, float)) else list(value)

"""One value of a sample: the native field it comes from, and how that becomes what the stages would have made.

A column of a native batch becomes values here, or stays whole where nothing has to be done to them. Numbers and JSON
are read by Python, which knows integers of any size and NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _native
from .._compiler import Compiled, compile_transform
from ..arrays import numpy_column, torch_column
from ..errors import BrimfulError
from . import images
from .values import extension, int_loads, json_loads

NATIVE_IMAGES = frozenset(["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm", "pbm", "pnm"])
NUMBERS = frozenset(["cls", "cls2", "index", "inx", "id"])
TEXTS = frozenset(["txt", "text", "transcript"])
DOCUMENTS = frozenset(["json", "jsn"])
NATIVE_VALUES = NUMBERS | TEXTS | DOCUMENTS

# Fields with these endings are decoded in Python: some may run code, some need packages, arrays may differ in shape.
PYTHON_VALUES = frozenset(["pkl", "pickle", "pyd", "pth", "ten", "tb", "mp", "msg", "npy", "npz", "cbor", "gz"])


class NoNativeForm(Exception):
    """Ends the native part of a pipeline; the text says why."""


@dataclass(frozen=True)
class Column:
    """A value of a sample.

    Attributes:
        field: as `ShardDataset` names it.
        image_spec: how an image is wanted, or None for what is none.
        functions: of the value, in order.
        loads: of the bytes of a field that is delivered so, its value.
    """

    field: str
    image_spec: str | None = None
    functions: tuple[Callable, ...] = ()
    loads: Callable[[bytes], Any] | None = None

    @property
    def may_be_none(self) -> bool:
        """Whether what `functions` make of a value can be None."""
        if not self.functions:
            return False
        compiled = self.compiled()
        return compiled is None or not compiled.is_native

    def compiled(self) -> Compiled | None:
        """The functions of a PIL image, split into their native and their Python part; None if none is native."""
        if self.image_spec not in ("pil", "pilrgb") or not self.functions:
            return None
        try:
            compiled = compile_transform(list(self.functions))
        except (TypeError, BrimfulError):
            # It is called as any function is, and says itself what is wrong with it.
            return None
        return compiled if compiled.names else None

    def values(self, column: Any, compiled: Compiled | None) -> tuple[list[Any], tuple[Callable, ...]]:
        """The values of a native column, and the functions that are left to make of each what the stages would."""
        if self.image_spec is None:
            values = numpy_column(column).tolist() if isinstance(column, _native.Tensor) else list(column)
            return values, self.functions
        if compiled is not None and compiled.makes_tensor:
            return _each(column, torch_column), compiled.python
        values = [_image(pixels, self.image_spec) for pixels in _each(column, numpy_column)]
        return values, self.functions if compiled is None else compiled.python

    def whole(self, column: Any, compiled: Compiled | None) -> Any | None:
        """The native column as a column of a batch; None where its rows have to be made and combined."""
        if self.image_spec is None or not isinstance(column, _native.Tensor):
            return None
        if compiled is not None and compiled.makes_tensor:
            return None if compiled.python else torch_column(column)
        container, element, _ = images.imagespecs[self.image_spec]
        if self.functions or container == "pil":
            return None
        return _stacked(numpy_column(column), container, element)


def column_of(names: str, is_decoded: bool, image_spec: str | None) -> Column:
    """The column of a field of to_tuple, `names` being its alternatives.

    Raises:
        NoNativeForm: if the native side would make something else of it.
    """
    alternatives = names.split(";")
    if names != names.lower() or not all(alternatives) or ":" in names or " " in names:
        raise NoNativeForm(f"the field '{names}' has no native form")
    if alternatives == ["__key__"]:
        return Column("__key__")
    if any(name.startswith("__") for name in alternatives):
        raise NoNativeForm(f"the field '{names}' has no native form")
    if not is_decoded:
        return Column(f"{names}:bytes")
    endings = {extension(name) for name in alternatives}
    if endings & PYTHON_VALUES:
        raise NoNativeForm(f"'{names}' is decoded in Python")
    if endings <= NUMBERS:
        return Column(f"{names}:bytes", loads=int_loads)
    if endings <= DOCUMENTS:
        return Column(f"{names}:bytes", loads=json_loads)
    if endings <= TEXTS:
        return Column(names)
    if not endings & (NATIVE_VALUES | set(images.IMAGE_EXTENSIONS)) or (
        image_spec is None and not endings & NATIVE_VALUES
    ):
        return Column(f"{names}:bytes")
    if image_spec is not None and endings <= NATIVE_IMAGES:
        return Column(names, image_spec)
    raise NoNativeForm(f"'{names}' may be several kinds of value")


def present(value: Any) -> Any:
    """`value`, which to_tuple refuses where it is None."""
    if value is None:
        raise ValueError("a field of to_tuple is None; none_is_error=False lets it pass")
    return value


def _each(column: Any, convert: Callable[[Any], Any]) -> list[Any]:
    """The rows of a column, which is one tensor or a list with one for each row."""
    return [convert(row) for row in column] if isinstance(column, list) else list(convert(column))


def _image(pixels: Any, image_spec: str) -> Any:
    """Pixels `[H, W, 3]` as an image spec has them."""
    container, element, _ = images.imagespecs[image_spec]
    if container != "pil":
        return images.as_array(pixels, container, element)
    from PIL import Image

    return Image.fromarray(pixels)


def _stacked(pixels: Any, container: str, element: str | None) -> Any:
    """Pixels `[N, H, W, 3]` as a batch of what an image spec has."""
    if container == "numpy":
        return images.as_array(pixels, container, element)
    import numpy
    import torch

    if element == "float":
        pixels = pixels.astype(numpy.float32) / 255.0
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())

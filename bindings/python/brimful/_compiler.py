"""From a list of transforms to what the native side runs and what is left for Python.

It recognises torchvision's and timm's objects by module and class, without importing either; it applies nothing
itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native, transforms
from .errors import BrimfulError, InvalidOptionError

_TENSOR_MAKERS = frozenset({"ToTensor", "PILToTensor", "ToImage", "ConvertImageDtype", "ToDtype", "Normalize"})


@dataclass(frozen=True)
class Compiled:
    """A transform in two parts: `json` runs natively, then `python` runs in Python."""

    json: str
    names: tuple[str, ...]
    python: tuple[Callable, ...]
    reason: str | None

    @property
    def is_native(self) -> bool:
        return not self.python

    @property
    def makes_tensor(self) -> bool:
        """Whether the native part ends with a tensor; otherwise torchvision would have a PIL image there."""
        return any(name in _TENSOR_MAKERS for name in self.names)

    @property
    def is_random(self) -> bool:
        return any(name.startswith("Random") for name in self.names)


@dataclass(frozen=True)
class _Entry:
    """One transform: its specs if it has a native form, otherwise why not."""

    object: Any
    specs: list[dict] | None
    reason: str | None = None


def compile_transform(transform: Any) -> Compiled:
    """Splits `transform` into the longest native beginning and the rest.

    Raises:
        TypeError: for something that is no transform.
        InvalidOptionError: for arguments out of range.
    """
    entries = _flatten(transform)
    _settle_maybes(entries)
    known = 0
    while known < len(entries) and entries[known].specs is not None:
        known += 1
    reason = entries[known].reason if known < len(entries) else None
    while True:
        specs = [spec for entry in entries[:known] for spec in entry.specs or ()]
        try:
            # The native side spells every argument out, so that equal transforms have equal texts.
            text = _native.check_transform(json.dumps(specs, allow_nan=False))
            break
        except ValueError as error:
            if isinstance(error, BrimfulError):
                raise
            message = f"a transform has an argument that is no finite number: {specs}"
            raise InvalidOptionError(message) from None
        except BrimfulError as error:
            if error.kind != "unsupported" or known == 0:
                raise
            # The whole list is in order for torchvision, but not all of it has a native form.
            if not all(callable(entry.object) for entry in entries[known - 1 :]):
                raise
            known, reason = known - 1, error.message
    rest = entries[known:]
    for entry in rest:
        if not callable(entry.object):
            raise TypeError(_refusal(entry, rest[0]))
    names = tuple(spec["name"] for spec in specs)
    return Compiled(text, names, tuple(entry.object for entry in rest), reason if rest else None)


def _refusal(entry: _Entry, first: _Entry) -> str:
    supported = ", ".join(name for name in transforms.__all__ if name not in ("InterpolationMode", "Transform"))
    if isinstance(entry.object, transforms.Transform):
        return (
            f"{entry.object!r} only runs natively and cannot follow {_name(first.object)}, which runs in Python; "
            f"move it before that one, or use torchvision's transform of the same name"
        )
    return f"{entry.object!r} is no transform; brimful runs {supported} natively, and any callable in Python"


def _flatten(transform: Any) -> list[_Entry]:
    if transform is None:
        return []
    if isinstance(transform, transforms.Transform):
        return [_Entry(transform, [transform.spec()])]
    if isinstance(transform, transforms.Compose) or _is_container(transform):
        members = getattr(transform, "transforms", transform)
        return [entry for member in members for entry in _flatten(member)]
    if isinstance(transform, Sequence) and not isinstance(transform, str):
        return [entry for member in transform for entry in _flatten(member)]
    if _is_recipe(transform):
        return _flatten(transform.transforms)
    return [_entry_of(transform)]


def _is_container(transform: Any) -> bool:
    kind = type(transform)
    is_compose = _family(kind) is not None and kind.__name__ == "Compose"
    return is_compose or (kind.__module__ == "torch.nn.modules.container" and kind.__name__ == "Sequential")


def _is_recipe(transform: Any) -> bool:
    """Whether this is a preset of torchvision's training recipe, which is in no package, and only calls its list.

    A class of that name may do more: its call must be the same instructions as the one below.
    """
    kind = type(transform)
    call = getattr(kind.__dict__.get("__call__"), "__code__", None)
    if call is None or not kind.__name__.startswith("ClassificationPreset"):
        return False
    plain = _Recipe.__call__.__code__
    return (call.co_code, call.co_names, call.co_argcount) == (plain.co_code, plain.co_names, plain.co_argcount)


class _Recipe:
    """What a preset's call looks like."""

    transforms: Callable

    def __call__(self, image: Any) -> Any:
        return self.transforms(image)


def _family(kind: type) -> str | None:
    if kind.__module__ == "torchvision.transforms.transforms":
        return "v1"
    if kind.__module__ == "torchvision.transforms._presets":
        return "preset"
    if kind.__module__ == "timm.data.transforms":
        return "timm"
    return "v2" if kind.__module__.startswith("torchvision.transforms.v2.") else None


def _entry_of(transform: Any) -> _Entry:
    kind = type(transform)
    family = _family(kind)
    if family is None:
        return _Entry(transform, None, f"{_name(transform)} is no transform that brimful knows")
    table, owner = (_TIMM, "timm's") if family == "timm" else (_TORCHVISION, "torchvision's")
    translate = table.get(kind.__name__)
    if translate is None:
        return _Entry(transform, None, f"{owner} {kind.__name__} has no native form")
    try:
        return _Entry(transform, translate(transform, family))
    except (TypeError, ValueError) as error:
        return _Entry(transform, None, f"{owner} {kind.__name__}: {error}")


def _settle_maybes(entries: list[_Entry]) -> None:
    """timm's MaybeToTensor does nothing where a transform before it made a tensor."""
    is_tensor = False
    for place, entry in enumerate(entries):
        if is_tensor and type(entry.object).__name__ == "MaybeToTensor" and entry.specs:
            entries[place] = _Entry(entry.object, [])
        is_tensor = is_tensor or any(spec["name"] in _TENSOR_MAKERS for spec in entry.specs or ())


def _random_resized_crop(t: Any, family: str) -> list[dict]:
    return [transforms.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, t.antialias).spec()]


def _random_crop(t: Any, family: str) -> list[dict]:
    padding = t.padding
    if family == "v2" and padding is not None:
        # v2 keeps left, right, top, bottom.
        left, right, top, bottom = padding
        padding = [left, top, right, bottom]
    return [transforms.RandomCrop(t.size, padding, t.pad_if_needed, _fill(t.fill), t.padding_mode).spec()]


def _resize(t: Any, family: str) -> list[dict]:
    return [transforms.Resize(t.size, t.interpolation, t.max_size, t.antialias).spec()]


def _pad(t: Any, family: str) -> list[dict]:
    return [transforms.Pad(t.padding, _fill(t.fill), t.padding_mode).spec()]


def _convert_dtype(t: Any, family: str) -> list[dict]:
    dtype = _dtype(t.dtype)
    if family == "v2":
        return [transforms.ToDtype(dtype, scale=True).spec()]
    return [transforms.ConvertImageDtype(dtype).spec()]


def _classification(t: Any, family: str) -> list[dict]:
    steps = (
        transforms.Resize(t.resize_size, t.interpolation, None, t.antialias),
        transforms.CenterCrop(t.crop_size),
        transforms.PILToTensor(),
        transforms.ConvertImageDtype("float32"),
        transforms.Normalize(t.mean, t.std),
    )
    return [step.spec() for step in steps]


_TORCHVISION: dict[str, Callable[[Any, str], list[dict]]] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomCrop": _random_crop,
    "CenterCrop": lambda t, _: [transforms.CenterCrop(t.size).spec()],
    "Resize": _resize,
    "Pad": _pad,
    "RandomHorizontalFlip": lambda t, _: [transforms.RandomHorizontalFlip(t.p).spec()],
    "RandomVerticalFlip": lambda t, _: [transforms.RandomVerticalFlip(t.p).spec()],
    "ToTensor": lambda t, _: [transforms.ToTensor().spec()],
    "PILToTensor": lambda t, _: [transforms.PILToTensor().spec()],
    "ToImage": lambda t, _: [transforms.ToImage().spec()],
    "ToPureTensor": lambda t, _: [],
    "Identity": lambda t, _: [],
    "ConvertImageDtype": _convert_dtype,
    "ToDtype": lambda t, _: [transforms.ToDtype(_dtype(t.dtype), t.scale).spec()],
    "Normalize": lambda t, _: [transforms.Normalize(t.mean, t.std).spec()],
    "ImageClassification": _classification,
}


# timm crops as torchvision does, with other numbers drawn; where it also draws the filter there is no native form.
_TIMM: dict[str, Callable[[Any, str], list[dict]]] = {
    "RandomResizedCropAndInterpolation": lambda t, _: [
        transforms.RandomResizedCrop(t.size, t.scale, t.ratio, _one_filter(t.interpolation)).spec()
    ],
    "MaybeToTensor": lambda t, _: [transforms.ToTensor().spec()],
}


def _one_filter(interpolation: Any) -> Any:
    if isinstance(interpolation, (tuple, list)):
        raise ValueError("a filter that is drawn for each image has no native form")
    return interpolation


def _fill(fill: Any) -> Any:
    if isinstance(fill, dict):
        raise TypeError("a fill for each type has no native form")
    return 0 if fill is None else fill


def _dtype(dtype: Any) -> str:
    name = transforms.dtype_name(dtype)
    if name not in ("float32", "uint8"):
        raise ValueError(f"dtype {dtype} has no native form")
    return name


def _name(transform: Any) -> str:
    name = getattr(transform, "__qualname__", None)
    return name if name is not None else type(transform).__name__

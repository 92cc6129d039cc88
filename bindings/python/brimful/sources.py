"""Data sets that brimful knows, as what the native engine reads: shards, image folders, parts of them, several as one.

It recognises torch's and torchvision's classes and looks at what they hold; it reads no sample.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch.utils.data

from . import _native
from ._compiler import Compiled, compile_transform
from .dataset import ShardDataset, own_methods
from .errors import InvalidOptionError

# What of a data set makes samples; a subclass with one of its own must be asked itself.
_METHODS = ("__getitem__", "__getitems__", "__len__")


class Unknown(Exception):
    """A data set that the native engine cannot read as it would be read itself; the message says why."""


class Folder:
    """A torchvision `ImageFolder` or `DatasetFolder`: its files are read directly, in its order.

    Has what a `ShardDataset` has for an engine.
    """

    fields = ("img", "cls")
    is_stream = False

    def __init__(self, folder: Any, decoder: str, io: str) -> None:
        self.root = os.fspath(folder.root)
        self.paths = [os.fspath(path) for path, _ in folder.samples]
        self.classes = [_class(path, target) for path, target in folder.samples]
        self.transform = folder.transform
        self.target_transform = folder.target_transform
        try:
            self.compiled: Compiled = compile_transform(folder.transform)
        except Exception as error:
            raise Unknown(f"its transform has no native form: {error}") from None
        if self.compiled.is_native and not self.compiled.makes_tensor:
            raise Unknown("its transform makes no tensors, and what torch makes of PIL images is torch's to say")
        self._options = {"decoder": decoder, "io": io}
        self._files: _native.Dataset | None = None

    @property
    def native(self) -> _native.Dataset:
        """The native data set; made anew in a process that got this object by pickling."""
        if self._files is None:
            self._files = _native.Dataset.of_files(
                self.root,
                self.paths,
                self.classes,
                transform=self.compiled.json,
                mode="RGB",
                exif=False,
                truncated="refuse",
                **self._options,
            )
        return self._files

    def shaped(self, columns: Sequence[Any], kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
        """One value a field, in order, as a `kind`."""
        return kind(columns)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None}


class Joined:
    """Several sources as one, each whole or only the samples with certain numbers.

    Has what a `ShardDataset` has for an engine; what it does not say itself is that of the first part.
    """

    is_stream = False

    def __init__(self, parts: list[tuple[Source, list[int] | None]]) -> None:
        self.parts = parts
        first = parts[0][0]
        self.fields, self.transform, self.target_transform = first.fields, first.transform, first.target_transform
        self.compiled: Compiled = first.compiled
        self._joined: _native.Dataset | None = None

    @property
    def native(self) -> _native.Dataset:
        """The native data set; made anew in a process that got this object by pickling."""
        if self._joined is None:
            self._joined = _native.Dataset.join([(source.native, numbers) for source, numbers in self.parts])
        return self._joined

    def shaped(self, columns: Sequence[Any], kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
        """One value a field as the parts ask for them."""
        first = self.parts[0][0]
        return first.shaped(columns, kind)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_joined": None}


Source = ShardDataset | Folder | Joined


def native_source(dataset: Any, decoder: str = "auto", io: str = "auto") -> Source:
    """What the native engine reads in the place of `dataset`.

    Raises:
        Unknown: if only the data set itself can make its samples.
        InvalidOptionError: for a part of a stream.
    """
    if isinstance(dataset, ShardDataset):
        if mine := own_methods(dataset):
            raise Unknown(f"{type(dataset).__name__} has a {mine[0]} of its own")
        return with_words(dataset, decoder, io)
    if _is_plain(dataset, torch.utils.data.Subset):
        inner = native_source(dataset.dataset, decoder, io)
        return _joined([(inner, _numbers(dataset.indices, inner))])
    if _is_plain(dataset, torch.utils.data.ConcatDataset):
        return _joined([(native_source(member, decoder, io), None) for member in dataset.datasets])
    folders = sys.modules.get("torchvision.datasets.folder")
    if folders is not None and isinstance(dataset, folders.DatasetFolder):
        if not _is_plain(dataset, folders.DatasetFolder):
            raise Unknown(f"{type(dataset).__name__} makes its samples itself")
        if not _loads_pil(folders, dataset.loader):
            raise Unknown(f"{type(dataset).__name__} opens its files by a function of its own")
        return Folder(dataset, decoder, io)
    raise Unknown(f"{type(dataset).__name__} is no data set that brimful reads itself")


def _joined(parts: list[tuple[Source, list[int] | None]]) -> Joined:
    first = parts[0][0]
    for source, _ in parts:
        if source.is_stream:
            raise InvalidOptionError(
                "a stream of shards has no samples by number, which a part of it or several as one need",
                hint='access="indexed" reads them through an index',
            )
        if source.fields != first.fields:
            raise Unknown("the joined data sets have other fields")
        if source.compiled.json != first.compiled.json or source.compiled.python != first.compiled.python:
            raise Unknown("the joined data sets have other transforms")
        if source.target_transform != first.target_transform:
            raise Unknown("the joined data sets have other target_transforms")
    joined = Joined(parts)
    try:
        joined.native  # noqa: B018 - made here for its checks
    except InvalidOptionError as error:
        raise Unknown(str(error)) from None
    return joined


def _numbers(indices: Any, source: Source) -> list[int]:
    samples = source.native.samples
    numbers = [operator.index(number) for number in indices]
    if samples is None or not numbers or min(numbers) >= 0:
        return numbers

    def counted_from_the_end(number: int) -> int:
        # What lies before the beginning is refused with what lies behind the end.
        return number + samples if number >= -samples else samples

    return [number if number >= 0 else counted_from_the_end(number) for number in numbers]


def with_words(dataset: ShardDataset, decoder: str, io: str) -> ShardDataset:
    """`dataset` with another decoder or way of reading, where these say something else than "auto"."""
    changes = {name: word for name, word in (("decoder", decoder), ("io", io)) if word != "auto"}
    # Frameworks that make a loader anew give the data set it had; a sampler over it must know it again.
    changes = {name: word for name, word in changes.items() if dataset.option(name) != word}
    return dataset.with_options(**changes) if changes else dataset


def _is_plain(dataset: Any, kind: type) -> bool:
    """Whether `dataset` is of `kind` and makes its samples as that does."""
    own = type(dataset)
    return isinstance(dataset, kind) and all(getattr(own, name, None) is getattr(kind, name, None) for name in _METHODS)


def _loads_pil(folders: Any, loader: Any) -> bool:
    if loader is folders.pil_loader:
        return True
    return loader is folders.default_loader and sys.modules["torchvision"].get_image_backend() == "PIL"


def _class(path: Any, target: Any) -> int:
    try:
        return operator.index(target)
    except TypeError:
        raise Unknown(f"the class of {os.fspath(path)} is no integer") from None

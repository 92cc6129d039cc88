"""A data set over tar shards: map-style for anyone, and the source of brimful's loaders."""

from __future__ import annotations

import operator
import os
import random
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from ._compiler import Compiled, compile_transform
from .arrays import numpy_column, torch_column, torch_is_there
from .errors import DataWarning, InvalidOptionError, ShardChangedError
from .progress import ProgressLine

__all__ = ["ShardDataset"]

# Options that make other samples of the same shards.
_WHICH_SAMPLES = {"key_split", "duplicates", "keep_appledouble", "damage", "access"}


class ShardDataset:
    """The samples of WebDataset tar shards.

    `dataset[i]` is a tuple with one entry a field: a decoded and transformed image, an `int` label, a text, ... A field
    given as a bare string makes samples of that entry alone, and a mapping of names to fields makes them dicts. Images
    are torch tensors `[C, H, W]` where torch is installed and NumPy arrays of that shape where it is not.

    A subclass may have a `__getitem__`, `__getitems__` or `__len__` of its own; `DataLoader` then goes through it, on
    torch's path, and `Loader` refuses it.

    Args:
        patterns: shards as one pattern or several: braces (`train-{000000..000146}.tar`), globs, folders, paths.
        fields: what is wanted of a sample, in order: `"jpg;jpeg;png"` (the first present wins), `"cls"`, `"txt"`,
            `"json"`, `"json:meta.label"`, `"jpg:bytes"` (undecoded), `"__key__"`, `"__url__"`. As a mapping, such as
            `{"pixel_values": "jpg", "labels": "cls"}`, samples and batches are dicts of those names.
        transform: of `brimful.transforms` or torchvision (v1 or v2), applied to images. What cannot be compiled runs
            in Python, after the rest: it gets a PIL image, or a tensor once a transform before it made one.
        target_transform: called with the value of the last field.
        mode: "RGB" or "L".
        exif: whether images are turned upright as their EXIF orientation says.
        decoder: what decodes JPEG: "auto", "baseline", "turbo", "zune".
        io: how shards are read: "auto" (as `brimful bench storage` found best for this storage, otherwise maps on local
            file systems), "mmap", "read", "direct" (past the page cache), "uring" (the same by io_uring; Linux).
        index_cache: keep indexes in the user's cache folder (True), in another folder (a path), or nowhere (None).
        key_split: whether the "first" dot of a name ends the key, as in webdataset, or the "last".
        duplicates: a field given twice in a sample is an "error", or "keep_first" wins.
        keep_appledouble: keep `._name` files, which macOS leaves in archives.
        damage: a damaged archive is an error ("strict"), or reading goes on at the next header ("resync"). With an
            index this is settled when the data set is made, whatever a loader's on_error says: "strict" raises here,
            and what "resync" loses is told as a `DataWarning`; no loader counts or lists it.
        truncated: a JPEG that ends early is an error ("refuse"), or decoded as far as it goes ("allow").
        access: "indexed" for random access, "stream" to read in sequence, "auto" to stream compressed shards only.
        memory_limit_bytes: the most that one compressed shard may inflate to under access="indexed".
        index_threads: threads that build indexes, 0 for all cores.
    """

    def __init__(
        self,
        patterns: str | os.PathLike | Sequence[str | os.PathLike],
        fields: str | Sequence[str] | Mapping[str, str] = ("jpg;jpeg;png", "cls"),
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        mode: str = "RGB",
        exif: bool = False,
        decoder: str = "auto",
        io: str = "auto",
        index_cache: bool | str | os.PathLike | None = True,
        key_split: str = "first",
        duplicates: str = "error",
        keep_appledouble: bool = False,
        damage: str = "strict",
        truncated: str = "refuse",
        access: str = "auto",
        memory_limit_bytes: int = 2 << 30,
        index_threads: int = 0,
    ) -> None:
        self.patterns = _patterns(patterns)
        self.fields = _fields(fields)
        self.transform = transform
        self.target_transform = target_transform
        self._options = {
            "mode": mode,
            "exif": exif,
            "decoder": decoder,
            "io": io,
            "index_cache": cache_folder(index_cache),
            "key_split": key_split,
            "duplicates": duplicates,
            "keep_appledouble": keep_appledouble,
            "damage": damage,
            "truncated": truncated,
            "access": access,
            "memory_limit_bytes": count("memory_limit_bytes", memory_limit_bytes),
            "index_threads": count("index_threads", index_threads),
        }
        self._fingerprint: int | None = None
        self._compiled: Compiled | None = None
        self._shards: _native.Dataset | None = None
        self._fetcher: _native.Loader | None = None
        self._open()

    def _open(self) -> _native.Dataset:
        if self._shards is None:
            shards = _native.Dataset(
                self.patterns,
                fields=self._selectors(),
                transform=self.compiled.json,
                progress=ProgressLine("indexing shards"),
                io_profiles=cache_folder(True),
                **self._options,
            )
            if self._fingerprint is not None and self._fingerprint != shards.fingerprint:
                raise ShardChangedError(
                    f"the shards of {self.patterns} are not those that this data set was made with",
                    hint="make the data set anew",
                )
            if self._fingerprint is None:
                for sentence in shards.warnings:
                    warnings.warn(sentence, DataWarning, stacklevel=4)
            self._fingerprint = shards.fingerprint
            self._shards = shards
        return self._shards

    @property
    def compiled(self) -> Compiled:
        """The transform, split into its native and its Python part."""
        if self._compiled is None:
            self._compiled = compile_transform(self.transform)
        return self._compiled

    @property
    def native(self) -> _native.Dataset:
        """The native data set; opened anew in a process that got this object by pickling."""
        return self._open()

    def option(self, name: str) -> Any:
        """The value of an option of the constructor, by its name."""
        return self._options[name]

    @property
    def is_stream(self) -> bool:
        """Whether samples are read in sequence, so that there is no length and no random access."""
        return self.native.samples is None

    @property
    def paths(self) -> list[Path]:
        """Paths of the shards, in order."""
        return self.native.paths

    def key(self, index: int) -> str:
        """The key of a sample; bytes that are not UTF-8 come as `os.fsdecode` gives them."""
        return os.fsdecode(self.native.key(self._position(index)))

    def __len__(self) -> int:
        samples = self.native.samples
        if samples is None:
            raise TypeError('a stream of shards has no length; access="indexed" reads them through an index')
        return samples

    def __getitem__(self, index: int) -> Any:
        if own_methods(self) == ["__getitems__"]:
            return self.__getitems__([index])[0]
        return self._samples([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Samples by number, decoded on the calling thread."""
        # torch asks for many at a time: a subclass that makes them one by one must be heard all the same.
        mine = own_methods(self)
        if "__getitem__" in mine and "__getitems__" not in mine:
            return [self[index] for index in indices]
        return self._samples(indices)

    def _samples(self, indices: Sequence[int]) -> list[Any]:
        positions = [self._position(index) for index in indices]
        if not positions:
            return []
        fetcher = self._loader_for_fetch()
        draw = self._draw()
        # Values of unequal shape cannot share a batch, but can be samples of one list.
        if self.native.image_size is not None and not self._has_arrays():
            return self._rows(fetcher.fetch(positions, draw))
        return [row for position in positions for row in self._rows(fetcher.fetch([position], draw))]

    def _position(self, index: int) -> int:
        index = operator.index(index)
        samples = len(self)
        position = index + samples if index < 0 else index
        if not 0 <= position < samples:
            raise IndexError(f"there is no sample {index}: the data set has {samples}")
        return position

    def _draw(self) -> int:
        """What augmentation derives from, beside the sample: drawn where torchvision would draw."""
        if not self.compiled.is_random:
            return 0
        torch = sys.modules.get("torch")
        if torch is not None:
            return int(torch.empty((), dtype=torch.int64).random_().item())
        return random.getrandbits(63)

    def _loader_for_fetch(self) -> _native.Loader:
        if self._fetcher is None:
            from .engine import native_loader

            self._fetcher = native_loader(self.native, num_workers=1)
        return self._fetcher

    def _has_arrays(self) -> bool:
        return any("np" in field or "json" in field for field in self._selectors())

    def _selectors(self) -> list[str]:
        if isinstance(self.fields, str):
            return [self.fields]
        return list(self.fields.values() if isinstance(self.fields, dict) else self.fields)

    def shaped(self, columns: Sequence[Any], kind: Callable[[Sequence[Any]], Any] = tuple) -> Any:
        """One value a field as these fields ask for them: alone, by name, or in order as a `kind`."""
        if isinstance(self.fields, str):
            return columns[0]
        return dict(zip(self.fields, columns, strict=True)) if isinstance(self.fields, dict) else kind(columns)

    def _rows(self, batch: _native.Batch) -> list[Any]:
        to_array = torch_column if torch_is_there() else numpy_column
        is_image = self.native.image_fields
        columns = []
        for column, image in zip(batch.columns, is_image, strict=True):
            rows = list(to_array(column))
            if image:
                rows = [self._finish(row) for row in rows]
            elif rows and getattr(rows[0], "shape", None) == ():
                rows = [row.item() for row in rows]
            columns.append(rows)
        if self.target_transform is not None:
            columns[-1] = [self.target_transform(value) for value in columns[-1]]
        return [self.shaped(row) for row in zip(*columns, strict=True)]

    def _finish(self, image: Any) -> Any:
        """Runs the part of the transform that has no native form."""
        python = self.compiled.python
        if not python:
            return image
        if not self.compiled.makes_tensor:
            image = _pil_image(image)
        for step in python:
            image = step(image)
        return image

    def with_options(self, **changes: Any) -> ShardDataset:
        """The same data set with other arguments, named as in the constructor."""
        own = {"patterns", "fields", "transform", "target_transform"}
        for name in changes:
            if name not in own and name not in self._options:
                raise TypeError(f"with_options() got an unexpected keyword argument {name!r}")
        if "patterns" in changes:
            changes["patterns"] = _patterns(changes["patterns"])
        if "fields" in changes:
            changes["fields"] = _fields(changes["fields"])
        if "index_cache" in changes:
            changes["index_cache"] = cache_folder(changes["index_cache"])
        for name in {"memory_limit_bytes", "index_threads"} & set(changes):
            changes[name] = count(name, changes[name])
        attributes = {name: changes.pop(name) for name in own & set(changes)}
        if "transform" in attributes:
            attributes["_compiled"] = None
        if "patterns" in attributes or _WHICH_SAMPLES & set(changes):
            # Other samples are what is asked for.
            attributes["_fingerprint"] = None
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _options={**self._options, **changes}, _shards=None, _fetcher=None)
        other.__dict__.update(attributes)
        other._open()
        return other

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.update(_shards=None, _fetcher=None, _compiled=None)
        return state

    def __repr__(self) -> str:
        size = "a stream" if self.is_stream else f"{len(self)} samples"
        return f"{type(self).__name__}({len(self.paths)} shards, {size}, fields={self.fields!r})"


def cache_folder(index_cache: bool | str | os.PathLike | None) -> str | None:
    """The folder that the option means; True is one in the user's cache."""
    if index_cache is None or index_cache is False:
        return None
    if index_cache is not True:
        folder = os.fspath(index_cache)
        if not folder:
            raise InvalidOptionError("index_cache is empty", hint="give a folder, True for the user's cache, or None")
        return folder
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A path that is not absolute is to be ignored, says the rule for this variable.
    base = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "brimful")


def own_methods(dataset: ShardDataset) -> list[str]:
    """What a subclass does in its own way, of what makes samples."""
    names = ("__getitem__", "__getitems__", "__len__")
    return [name for name in names if getattr(type(dataset), name) is not getattr(ShardDataset, name)]


def count(name: str, value: Any) -> int:
    """`value` as an integer that is not negative."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidOptionError(f"{name}={value!r} is no integer") from None
    if not 0 <= number <= sys.maxsize:
        raise InvalidOptionError(f"{name}={number} is {'negative' if number < 0 else 'too large'}")
    return number


def _fields(fields: Any) -> str | tuple[str, ...] | dict[str, str]:
    if isinstance(fields, Mapping):
        return dict(fields)
    return fields if isinstance(fields, str) else tuple(fields)


def _patterns(patterns: Any) -> list[str]:
    single = isinstance(patterns, (str, bytes, os.PathLike))
    try:
        return [os.fsdecode(pattern) for pattern in ([patterns] if single else patterns)]
    except TypeError:
        raise InvalidOptionError(f"{patterns!r} is neither a path or pattern of shards nor a list of them") from None


def _pil_image(image: Any) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "a transform that runs in Python gets PIL images, and Pillow cannot be imported; `pip install pillow`"
        ) from error
    array = numpy_of(image)
    return Image.fromarray(array[0] if array.shape[0] == 1 else array.transpose(1, 2, 0).copy())


def numpy_of(image: Any) -> Any:
    """The NumPy array of a torch tensor, or the array itself."""
    return image.numpy() if hasattr(image, "numpy") else image

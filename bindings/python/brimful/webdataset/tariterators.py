"""From opened shards to members to samples: neighbours with one key make a sample.

A member `dir/a.left.jpg` has the key `dir/a` and the field `left.jpg`. Samples torn apart by an archive out of order,
files that macOS leaves beside others, and damage are told; `compat="strict"` passes over them, as webdataset does.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import DataWarning, InvalidOptionError
from . import gopen as opener
from .braces import braceexpand
from .handlers import reraise_exception
from .stages import pipelinefilter
from .tarstream import regular_members

meta_prefix = "__"
meta_suffix = "__"

# Names that are files about the archive.
SKIP_META = r"__[^/]*__($|/)"

KEYS_MAX = 1_000_000

Handler = Callable[[Exception], bool]


class _EndOfShard(dict):
    """The empty dict that ends a shard.

    Groupers that were written before there was such a mark, as open_clip's, find a file without a name in it, which
    they pass over.
    """

    def __missing__(self, name: str) -> Any:
        return b"" if name == "data" else ""


END_OF_SHARD = _EndOfShard()


def is_strict(compat: str | None) -> bool:
    """Whether `compat` asks for webdataset's behaviour where brimful has another one."""
    if compat not in (None, "strict"):
        raise InvalidOptionError(
            f"compat={compat!r} is not known", hint='"strict" is what webdataset does; None is what brimful does'
        )
    return compat == "strict"


def base_plus_ext(path: str) -> tuple[str | None, str | None]:
    """Key and extension of a member: they part at the first dot after the last slash."""
    found = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", path)
    return (found.group(1), found.group(2)) if found else (None, None)


def valid_sample(sample: dict[str, Any] | None) -> bool:
    """Whether this is a sample to be passed on: a dict with entries, and not marked as bad."""
    return isinstance(sample, dict) and bool(sample) and not sample.get("__bad__", False)


def shardlist(urls: str | Iterable[str], *, shuffle: bool = False) -> Iterator[dict[str, str]]:
    """`{"url"}` for each name of a pattern or list."""
    names = list(braceexpand(urls) if isinstance(urls, str) else urls)
    if shuffle:
        random.shuffle(names)
    for name in names:
        yield {"url": name}


def url_opener(data: Iterable[dict[str, Any]], handler: Handler = reraise_exception, **kw: Any) -> Iterator[dict]:
    """Opens the `url` of each item as its `stream`."""
    for item in data:
        assert isinstance(item, dict) and "url" in item, f"shards come as {{'url': ...}}, not as {item!r}"
        try:
            item.update(stream=opener.gopen(item["url"], **kw))
        except Exception as error:
            error.args = (*error.args, item["url"])
            if handler(error):
                continue
            break
        yield item


def tar_file_iterator(
    fileobj: Any,
    skip_meta: str | None = SKIP_META,
    handler: Handler = reraise_exception,
    select_files: Callable[[str], bool] | None = None,
    rename_files: Callable[[str], str] | None = None,
    compat: str | None = None,
) -> Iterator[dict[str, Any]]:
    """`{"fname", "data"}` for each regular file of an archive.

    Args:
        fileobj: the archive as a stream.
        skip_meta: a pattern of names that are left out.
        handler: told of what goes wrong with a single file; damage of the archive is raised.
        select_files: of a name, whether the file is wanted.
        rename_files: of a name, another one; it comes before `select_files`.
        compat: "strict" to end quietly where an archive is damaged, and to keep `._name` files.
    """
    strict = is_strict(compat)
    left_out = 0
    for member in regular_members(fileobj, is_lenient=strict):
        try:
            name = member.name
            if skip_meta is not None and re.match(skip_meta, name):
                continue
            if not strict and os.path.basename(name).startswith("._"):
                left_out += 1
                continue
            if rename_files:
                name = rename_files(name)
            if select_files is not None and not select_files(name):
                continue
        except Exception as error:
            error.args = (f"{error.args[0] if error.args else error!r} @ {fileobj}", *error.args[1:])
            if handler(error):
                continue
            break
        yield {"fname": name, "data": member.data}
    if left_out:
        warnings.warn(
            f"{fileobj}: left out {left_out} files named ._*, which macOS writes; compat='strict' keeps them",
            DataWarning,
            stacklevel=2,
        )


def tar_file_expander(
    data: Iterable[dict[str, Any]],
    handler: Handler = reraise_exception,
    select_files: Callable[[str], bool] | None = None,
    rename_files: Callable[[str], str] | None = None,
    eof_value: dict | None = END_OF_SHARD,
    compat: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The files of opened shards, each with `__url__`, and `eof_value` at the end of each shard."""
    for source in data:
        url, local_path = source["url"], source.get("local_path")
        try:
            assert isinstance(source, dict) and "stream" in source, f"{url} was not opened: url_opener comes before"
            for item in tar_file_iterator(
                source["stream"],
                handler=handler,
                select_files=select_files,
                rename_files=rename_files,
                compat=compat,
            ):
                item["__url__"] = url
                if local_path is not None:
                    item["__local_path__"] = local_path
                yield item
            _close(source["stream"])
            if eof_value is not None:
                yield eof_value
        except Exception as error:
            error.args = (*error.args, source.get("stream"), source.get("url"))
            if not handler(error):
                break
            if eof_value is not None and not is_strict(compat):
                # What was read of the sample before the damage does not join the next shard's first one.
                yield eof_value
        finally:
            # Also where nobody wants the rest of a shard.
            with contextlib.suppress(Exception):
                _close(source.get("stream"))


def _close(stream: Any) -> None:
    """Closes a shard that was read to its end, so that a command that failed is told of here."""
    if hasattr(stream, "close") and stream is not sys.stdin.buffer:
        stream.close()


def group_by_keys(
    data: Iterable[dict[str, Any]],
    keys: Callable[[str], tuple[str | None, str | None]] = base_plus_ext,
    lcase: bool = True,
    suffixes: set[str] | None = None,
    handler: Handler = reraise_exception,
    compat: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Samples of neighbouring files with the same key.

    Args:
        data: files with `fname`, `data` and `__url__`; an empty dict ends a sample.
        keys: of a name, key and field; a key of None leaves the file out.
        lcase: whether fields are written in small letters.
        suffixes: the fields that are wanted.
        handler: told of a field that a sample has twice; where it goes on, the first one stays.
        compat: "strict" to say nothing of keys that come again after other keys.
    """
    torn = None if is_strict(compat) else _TornSamples()
    current: dict[str, Any] | None = None
    for item in data:
        try:
            assert isinstance(item, dict), f"files come as dicts, not as {type(item).__name__}"
            if not item:
                if valid_sample(current):
                    yield current
                current = None
                if torn is not None:
                    torn.end_shard()
                continue
            key, suffix = keys(item["fname"])
            if key is None:
                continue
            if lcase:
                suffix = suffix.lower()
            if current is None or key != current["__key__"]:
                if valid_sample(current):
                    yield current
                current = {"__key__": key, "__url__": item["__url__"]}
                if torn is not None:
                    torn.see(key, item["__url__"])
            if suffix in current:
                raise ValueError(
                    f"{item['fname']}: duplicate file name in tar file: the sample has a '{suffix}' already"
                )
            if suffixes is None or suffix in suffixes:
                current[suffix] = item["data"]
            if item.get("__local_path__") is not None:
                current["__local_path__"] = item["__local_path__"]
        except Exception as error:
            error.args = (*error.args, item.get("stream"), item.get("url"))
            if handler(error):
                continue
            break
    if valid_sample(current):
        yield current


class _TornSamples:
    """Notices keys that come again in a shard, once others came between."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._is_told = False

    def see(self, key: str, url: str) -> None:
        if key in self._seen and not self._is_told:
            self._is_told = True
            warnings.warn(
                f"{url}: the sample '{key}' is torn apart: its files are not neighbours, so that it comes as several "
                "samples; sort the archive's files by name",
                DataWarning,
                stacklevel=3,
            )
        if len(self._seen) < KEYS_MAX:
            self._seen.add(key)

    def end_shard(self) -> None:
        self._seen.clear()
        self._is_told = False


def tarfile_samples(
    src: Iterable[dict[str, Any]],
    handler: Handler = reraise_exception,
    select_files: Callable[[str], bool] | None = None,
    rename_files: Callable[[str], str] | None = None,
    compat: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Samples of the shards that `{"url"}` name."""
    files = tar_file_expander(
        url_opener(src, handler=handler),
        handler=handler,
        select_files=select_files,
        rename_files=rename_files,
        compat=compat,
    )
    return group_by_keys(files, handler=handler, compat=compat)


tarfile_to_samples = pipelinefilter(tarfile_samples)

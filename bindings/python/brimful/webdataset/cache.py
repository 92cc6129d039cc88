"""Copies of remote shards in a folder, and streams of shards with or without such copies.

A copy is named by its whole URL, so that `train/000.tar` and `val/000.tar` are two; it appears under its name when it
is complete, and is fetched by one process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import sys
import tempfile
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlparse

from ..errors import DataWarning
from .gopen import gopen, local_path
from .handlers import reraise_exception

default_cache_dir = os.environ.get("WDS_CACHE", "./_cache")
default_cache_size = float(os.environ.get("WDS_CACHE_SIZE", "1e18"))

RETRIES = 10
FIRST_PAUSE_S = 1.0

# Unfinished copies of this age belong to nobody any more.
LEFTOVER_S = 24 * 3600.0


def islocal(url: str) -> bool:
    """Whether a URL names a file of this machine."""
    return local_path(url) is not None


def url_to_cache_name(url: str, ndir: int = 0) -> str:
    """webdataset's name of a copy: the last part of the URL, and `ndir` folders above it."""
    assert isinstance(url, str), f"a URL is a string, not {type(url).__name__}"
    parts = urlparse(url)
    if parts.scheme in ("", "file", "http", "https", "ftp", "ftps", "gs", "s3", "ais"):
        return "/".join(parts.path.lstrip("/").split("/")[-1 - ndir :])
    return urllib.parse.quote(url, safe="_+{}*,-")[-128:]


def whole_url_to_cache_name(url: str) -> str:
    """A name that no other URL has: a readable part, and a hash of all of it."""
    readable = re.sub(r"[^\w.-]", "_", url_to_cache_name(url))[-64:].lstrip(".")
    return f"{hashlib.sha256(url.encode()).hexdigest()[:24]}-{readable}"


def pipe_cleaner(spec: str) -> str:
    """The URL inside a `pipe:` command, as far as one can be seen."""
    words = spec.removeprefix("pipe:").split(" ") if spec.startswith("pipe:") else []
    return next((word for word in words if re.match(r"^(https?|hdfs|gs|ais|s3):", word)), spec)


def check_tar_format(path: str) -> bool:
    """Whether a file begins like a tar archive or a gzip file."""
    with open(path, "rb") as stream:
        header = stream.read(512)
    return header[:2] == b"\x1f\x8b" or header[257:262] == b"ustar"


class LRUCleanup:
    """Keeps a folder below a size by deleting those files that were used longest ago.

    Args:
        cache_dir: the folder.
        cache_size: bytes that all files together may have.
        keyfn: of a path, when it was used.
        interval: seconds between two looks, or None to look every time.
    """

    def __init__(
        self,
        cache_dir: str | os.PathLike | None = None,
        cache_size: float = int(1e12),
        keyfn: Callable[[str], float] = os.path.getctime,
        verbose: bool = False,
        interval: float | None = 30,
    ) -> None:
        self.cache_dir = cache_dir
        self.cache_size = cache_size
        self.keyfn = keyfn
        self.verbose = verbose
        self.interval = interval
        self.last_run = 0.0

    def set_cache_dir(self, cache_dir: str | os.PathLike) -> None:
        self.cache_dir = cache_dir

    def cleanup(self) -> None:
        """Deletes what is too much."""
        if self.interval is not None and time.time() - self.last_run < self.interval:
            return
        self.last_run = time.time()
        files = []
        for folder, _, names in os.walk(self.cache_dir or "."):
            for path in (os.path.join(folder, name) for name in names):
                try:
                    files.append((self.keyfn(path), os.path.getsize(path), path))
                except OSError:
                    # Another process was faster.
                    continue
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.cache_size:
                return
            try:
                os.remove(path)
            except OSError:
                continue
            total -= size
            if self.verbose:
                print(f"# deleted {path}", file=sys.stderr)


def download(url: str, dest: str, chunk_size: int = 1 << 20, verbose: bool = False) -> None:
    """Copies what `url` names to `dest`, which appears when it is complete."""
    folder, name = os.path.split(dest)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".temp", dir=folder or ".")
    try:
        with os.fdopen(handle, "wb") as target, gopen(url) as source:
            while data := source.read(chunk_size):
                target.write(data)
        os.replace(temporary, dest)
    except BaseException:
        os.unlink(temporary)
        raise


class StreamingOpen:
    """A stage that opens each shard: `{"url"}` to `{"url", "stream"}`, with `local_path` for files."""

    def __init__(self, verbose: bool = False, handler: Callable[[Exception], bool] = reraise_exception) -> None:
        self.verbose = verbose
        self.handler = handler

    def __call__(self, urls: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for item in urls:
            url = item["url"] if isinstance(item, dict) else item
            try:
                path = local_path(url)
                opened = {"url": url, "stream": gopen(url) if path is None else open(path, "rb")}  # noqa: SIM115
            except Exception as error:
                if self.handler(error):
                    continue
                break
            if path is not None:
                opened["local_path"] = path
            yield opened


class FileCache:
    """A stage that opens a copy of each remote shard, which it fetches first; files are read where they are.

    Args:
        cache_dir: the folder of the copies; WDS_CACHE, or `./_cache`.
        url_to_name: of a URL, the name of its copy.
        validator: of a path, whether the copy is one that can be read; None to take any.
        handler: told of failures; where it says to go on, fetching is tried again, up to 10 times.
        cache_size: bytes that all copies together may have, or -1.
        cache_cleanup_interval: seconds between two looks at their size.
    """

    def __init__(
        self,
        cache_dir: str | os.PathLike | None = None,
        *,
        url_to_name: Callable[[str], str] = whole_url_to_cache_name,
        verbose: bool = False,
        validator: Callable[[str], bool] | None = check_tar_format,
        handler: Callable[[Exception], bool] = reraise_exception,
        cache_size: float = -1,
        cache_cleanup_interval: float = 30,
    ) -> None:
        self.cache_dir = os.fspath(default_cache_dir if cache_dir is None else cache_dir)
        self.url_to_name = url_to_name
        self.verbose = verbose
        self.validator = validator
        self.handler = handler
        self.cleaner = (
            LRUCleanup(self.cache_dir, cache_size, verbose=verbose, interval=cache_cleanup_interval)
            if cache_size > 0
            else None
        )

    def get_file(self, url: str) -> str:
        """The path of the file, or of the copy, of `url`.

        Raises:
            ValueError: if what was fetched is no archive.
            OSError: if it cannot be fetched.
        """
        path = local_path(url)
        if path is not None:
            return path
        dest = os.path.join(self.cache_dir, self.url_to_name(url))
        if not os.path.exists(dest):
            os.makedirs(os.path.dirname(dest), exist_ok=True)
            self._fetch(url, dest)
        # What was used last goes last.
        os.utime(dest)
        return dest

    def _fetch(self, url: str, dest: str) -> None:
        lock = os.path.join(os.path.dirname(dest), f".{os.path.basename(dest)}.lock")
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.path.exists(dest):
                return
            self._remove_leftovers(os.path.dirname(dest))
            if self.cleaner is not None:
                self.cleaner.cleanup()
            if self.verbose:
                print(f"# downloading {url} to {dest}", file=sys.stderr)
            download(url, dest)
            if self.validator is not None and not self.validator(dest):
                with open(dest, "rb") as stream:
                    begin = stream.read(100)
                os.remove(dest)
                raise ValueError(f"{url} is no tar archive: it begins with {begin!r}; validator=None takes any file")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)

    @staticmethod
    def _remove_leftovers(folder: str) -> None:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            try:
                if name.endswith(".temp") and time.time() - os.path.getmtime(path) > LEFTOVER_S:
                    os.unlink(path)
            except OSError:
                continue

    def __call__(self, urls: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for item in urls:
            url = item["url"] if isinstance(item, dict) else item
            pause_s, attempts = FIRST_PAUSE_S, 1 if islocal(url) else RETRIES
            for attempt in range(attempts):
                try:
                    path = self.get_file(url)
                    stream = open(path, "rb")  # noqa: SIM115
                except Exception as error:
                    if not self.handler(error):
                        return
                    if attempt + 1 < attempts:
                        time.sleep(pause_s)
                        pause_s *= 1.5
                    elif attempts > 1:
                        warnings.warn(
                            f"left out {url}, which failed {attempts} times: {error}", DataWarning, stacklevel=2
                        )
                    continue
                yield {"url": url, "stream": stream, "local_path": path}
                break

"""Conversions on a Ray cluster: the shards of one `brimful convert` made by many tasks, on as many machines.

It plans nothing: each task runs one part of the command, and the command makes the same bytes in any number of parts.
Source and destination must lie on storage that all nodes see under the same path.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import ray

__all__ = ["ConversionError", "convert"]

# Parts that are made unless a number is given: enough for any cluster, few enough to list a source for each.
_PARTS_MAX = 1024


class ConversionError(RuntimeError):
    """A part of a conversion, or the merge of all, has failed; the message is the command's."""


def convert(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    parts: int | None = None,
    threads: int = 2,
    max_retries: int = 3,
    **options: Any,
) -> dict[str, Any]:
    """Converts `source` into shards in `destination`, one part a Ray task; returns what `dataset.json` says.

    The bytes are those of `brimful convert source destination` with the same options. A task whose worker is lost is
    run again and goes on with the shards that are complete; so does a call of this function with the same arguments
    after one that failed.

    Args:
        source: what is converted; a path on storage that all nodes share.
        destination: the folder for the shards, on such storage too.
        parts: tasks to make of it; by default as many as a call before began, or else as many as the cluster has
            room for at once.
        threads: threads and CPUs of each task.
        max_retries: how often a task is run again when its worker is lost.
        **options: those of `brimful convert`, with underscores: `shuffle=0`, `samples_per_shard=5000`, `resize=512`,
            `strip_metadata=True`.

    Raises:
        ConversionError: when a part fails for another reason than a lost worker.
        TypeError: for an option that stands for a part of the work, which is this function's to choose.
    """
    for name in ("part", "merge", "resume", "dry_run", "json", "out"):
        if name in options:
            raise TypeError(f"'{name}' is chosen by brimful.ray.convert")
    if not ray.is_initialized():
        ray.init()
    # Workers may run in another folder.
    source, destination = os.path.abspath(source), os.path.abspath(destination)
    if parts is None:
        parts = _parts_begun(destination) or int(ray.cluster_resources().get("CPU", 1)) // threads
        parts = min(max(parts, 1), _PARTS_MAX)
    arguments = ["convert", source, destination, "--threads", str(threads), *_flags(options)]
    task = ray.remote(num_cpus=threads, max_retries=max_retries)(_run)
    # One part only would write the description of the data set itself, which a second call must not do again.
    if os.path.exists(os.path.join(destination, "dataset.json")):
        ray.get(task.remote([*arguments, "--resume"]))
    else:
        ray.get([task.remote([*arguments, "--resume", "--part", f"{part}/{parts}"]) for part in range(1, parts + 1)])
        _run(["convert", "--merge", destination])
    with open(os.path.join(destination, "dataset.json"), encoding="utf-8") as file:
        return json.load(file)


def _parts_begun(destination: str) -> int | None:
    """The number of parts of the conversion that was begun in a folder: it can only go on with as many."""
    try:
        names = os.listdir(os.path.join(destination, ".brimful-convert"))
    except FileNotFoundError:
        return None
    found = {int(match[1]) for name in names if (match := re.fullmatch(r"part-\d+-of-(\d+)\.jsonl", name))}
    return found.pop() if len(found) == 1 else None


def _flags(options: dict[str, Any]) -> list[str]:
    """Options as they are typed: `True` is the name alone, `False` and `None` are nothing."""
    flags: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags


def _run(arguments: list[str]) -> str:
    """Runs the command; samples that were left out within the budget are no failure."""
    command = [sys.executable, "-m", "brimful", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=_die_with_parent)
    # 1 tells of samples that were left out, in a summary; a Python that finds no brimful ends with 1 and prints none.
    if done.returncode not in (0, 1) or not done.stdout:
        raise ConversionError(done.stderr.strip() or f"`{' '.join(command)}` ended with {done.returncode}")
    return done.stdout


def _die_with_parent() -> None:
    """Ends the command when the worker that started it is lost: its next run would work beside it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)

"""What the commands of the wheel share: the machine in a few values, checks of arguments, whole files.

It runs nothing; see `__main__.py`.
"""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

from . import _native


def machine() -> dict[str, Any]:
    """The machine in six values, so that a number in a document is never without it."""
    pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "cores_available": cores(),
        "kernel": platform.release(),
        "memory_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "python": platform.python_version(),
    }


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_whole(path: str, text: str) -> None:
    """Writes a whole file or none; a link is followed, and what is no file is written to as it is."""
    _native.write_file(path, text)


def out_file(text: str) -> str:
    """An argument that names a file to write."""
    if text == "-":
        raise argparse.ArgumentTypeError("'-' is no file; --json prints the document on standard output")
    return text


def positive(text: str) -> int:
    """An argument that is a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1 on")
    return int(text)


def seconds(text: str) -> float:
    """An argument that is a time, at most a day."""
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 86400")
    return value

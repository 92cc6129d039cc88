"""How much processor time and memory the cgroup of this process allows, versions 1 and 2, below any root."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes a number near the largest one where there is no limit."""


class Limits(NamedTuple):
    """What a cgroup allows; None where nothing is bounded.

    Attributes:
        cores: processors' worth of time.
        memory_bytes: memory.
    """

    cores: float | None = None
    memory_bytes: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """The tightest limits of the group that this process is in, and of the groups above it."""
    groups = dict(_groups(_text(root / "proc/self/cgroup")))
    mount = root / "sys/fs/cgroup"
    if "" in groups and (mount / "cgroup.controllers").exists():
        levels = list(_levels(mount, groups[""]))
        quotas = [_quota(*_text(level / "cpu.max").split()[:2]) for level in levels]
        memory = [_number(level / "memory.max") for level in levels]
        return Limits(_least(quotas), _least(memory))
    quotas, memory = [], []
    for names, path in groups.items():
        controllers = names.split(",")
        for name in (names, *controllers):
            levels = list(_levels(mount / name, path)) if name and (mount / name).is_dir() else []
            if "cpu" in controllers:
                quotas += [_quota(_text(at / "cpu.cfs_quota_us"), _text(at / "cpu.cfs_period_us")) for at in levels]
            if "memory" in controllers:
                memory += [_number(level / "memory.limit_in_bytes") for level in levels]
    return Limits(_least(quotas), _least([size for size in memory if size is None or size < NO_LIMIT_BYTES]))


def _groups(text: str) -> list[tuple[str, str]]:
    """Controllers and path of lines such as `4:cpu,cpuacct:/docker/1f`."""
    rows = (line.split(":", 2) for line in text.splitlines())
    return [(row[1], row[2]) for row in rows if len(row) == 3]


def _levels(mount: Path, path: str) -> list[Path]:
    """Folders of a group and of those above it. In a container the path may be the host's, and is not there."""
    relative = PurePosixPath(path.lstrip("/"))
    folders = [mount / part for part in (relative, *relative.parents)] if ".." not in relative.parts else [mount]
    return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _quota(quota_us: str = "", period_us: str = "") -> float | None:
    if not quota_us.isdecimal() or not period_us.isdecimal() or int(period_us) == 0 or int(quota_us) == 0:
        return None
    return int(quota_us) / int(period_us)


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _least(values: list) -> float | int | None:
    return min((value for value in values if value is not None), default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

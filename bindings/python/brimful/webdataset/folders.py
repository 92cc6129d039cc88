"""A folder as a queue of shards: each is taken by renaming it, and may be new every time one looks."""

from __future__ import annotations

import glob
import os
import random
import re
import time
from collections.abc import Iterator
from typing import Any

from .braces import braceexpand
from .pytorch import IterableDataset


class DirectoryShardList(IterableDataset):
    """The shards in a folder, without end; while one is read its name ends in `._PID_`.

    Args:
        path: the folder, with a slash at its end.
        pattern: which files are shards: a glob with braces.
        poll: seconds to wait when there are none, or None to end then.
        timeout: seconds after which it ends.
        mode: what becomes of a shard that was read: "resample" puts it back, "unlink" deletes it, "keep" renames it to
            `._done_`, None leaves it under the name it was read by.
        select: "random" or "oldest".
    """

    def __init__(
        self,
        path: str,
        pattern: str = "*.{tar,tgz,tar.tgz}",
        poll: float | None = 1,
        timeout: float = 1e12,
        mode: str | None = "resample",
        select: str = "random",
        fate: Any = None,
    ) -> None:
        super().__init__()
        assert path.endswith("/"), f"{path!r} is watched as a folder; write it with a slash at its end"
        assert os.path.isdir(path), f"{path} is no folder"
        if select not in ("random", "oldest"):
            raise ValueError(f"select={select!r} is not known; it is 'random' or 'oldest'")
        self.path = path
        self.pattern = pattern
        self.poll = poll
        self.timeout = timeout
        self.mode = mode
        self.select = select
        self.fate = fate

    def __iter__(self) -> Iterator[dict[str, str]]:
        begin = time.monotonic()
        while time.monotonic() - begin < self.timeout:
            taken = self._take()
            if taken is None:
                if self.poll is None:
                    return
                time.sleep(self.poll)
                continue
            yield {"url": taken}
            self.recycle(taken)
            self.cleanup_files_without_processes()

    def _take(self) -> str | None:
        """Renames one of the shards so that no other process takes it; None where there is none left."""
        candidates = self._candidates()
        if self.select == "oldest":
            candidates.sort(key=_age)
        else:
            random.shuffle(candidates)
        for candidate in candidates:
            taken = f"{candidate}._{os.getpid()}_"
            try:
                os.rename(candidate, taken)
            except FileNotFoundError:
                continue
            return taken
        return None

    def _candidates(self) -> list[str]:
        folder = glob.escape(self.path)
        return sorted({name for pattern in braceexpand(self.pattern) for name in glob.glob(folder + pattern)})

    def recycle(self, activename: str) -> None:
        """Does with a shard that was read what `mode` says."""
        original = activename.rpartition(".")[0]
        if self.mode == "unlink":
            os.unlink(activename)
        elif self.mode == "keep":
            os.rename(activename, original + "._done_")
        elif self.mode == "resample":
            os.rename(activename, original)

    def cleanup_files_without_processes(self) -> None:
        """Recycles the shards of processes that are gone."""
        for name in glob.glob(os.path.join(glob.escape(self.path), "*._*_")):
            owner = re.search(r"\._(\d+)_$", name)
            if owner is not None and not _is_running(int(owner[1])):
                self.recycle(name)


def _age(name: str) -> float:
    try:
        return os.stat(name).st_mtime
    except FileNotFoundError:
        return 0.0


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True

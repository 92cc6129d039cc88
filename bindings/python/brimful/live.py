"""What running loaders do at the moment: written down by those that ask for it, shown by `brimful top`.

Each process has a file of its own in the user's runtime folder, made anew twice a second and removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _native
from .command import seconds
from .step_clock import Probe

PERIOD_S = 0.5
STALE_S = 5.0
"""A file that was not made anew for so long belongs to a process that has ended without a word."""


def folder() -> Path:
    """Where the files lie: the user's runtime folder, or one of the user's own among temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime) / "brimful"
    return Path(tempfile.gettempdir()) / f"brimful-{os.getuid()}"


class Live:
    """`with brimful.live.Live(loader):` shows the loader in `brimful top` while the block runs.

    Args:
        loader: a `brimful.DataLoader` or `brimful.Loader`.
        name: what it is called there; the program's name unless given.
        sampler: readings of a GPU that take the place of the loader's own GPU's.
    """

    def __init__(self, loader: Any, name: str | None = None, sampler: Any = None) -> None:
        self._loader = loader
        self._name = name or Path(sys.argv[0] or "python").name
        self._probe = Probe(getattr(loader, "_device", "cpu"), sampler)
        self._over = threading.Event()
        self._former: tuple[float, int] | None = None
        self.path = folder() / f"{os.getpid()}-{id(loader):x}.json"
        self._thread = threading.Thread(target=self._write_on, name="brimful live", daemon=True)

    def __enter__(self) -> Live:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.parent.stat().st_uid != os.getuid():
            raise PermissionError(f"{self.path.parent} belongs to another user; set XDG_RUNTIME_DIR")
        self.write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.path.unlink(missing_ok=True)

    def write(self) -> None:
        """Writes down what the loader does now."""
        _native.write_file(self.path, json.dumps(self.document()))

    def document(self) -> dict[str, Any]:
        """What is written: rates since the last time, shares since the start."""
        stats = self._loader.stats()
        now, samples = time.monotonic(), stats.get("samples", 0)
        then, before = self._former or (now, samples)
        self._former = (now, samples)
        told = {"name": self._name, "pid": os.getpid(), "engine": stats["engine"], "samples": samples}
        told["samples_per_s"] = max(0, samples - before) / (now - then) if now > then else None
        told["bottleneck"] = stats.get("bottleneck")
        stages = stats.get("stages", {})
        told["stages"] = {name: row["busy_share"] for name, row in stages.items()}
        told["wait_share"] = stages.get("wait", {}).get("busy_share")
        told["queue"] = (stats.get("device") or {}).get("slots_held")
        told["tuning"] = _tuning(getattr(self._loader, "tuning", None))
        told["gpu"] = self._probe.reading()
        return told

    def _write_on(self) -> None:
        while not self._over.wait(PERIOD_S):
            # A full disk is no reason for a training run to end.
            with contextlib.suppress(OSError):
                self.write()


def running(now: float | None = None) -> list[dict[str, Any]]:
    """The documents of all loaders that are shown at the moment; what processes left behind is removed."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            age = (time.time() if now is None else now) - path.stat().st_mtime
            document = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if age > STALE_S and not _is_alive(document.get("pid")):
            path.unlink(missing_ok=True)
        elif isinstance(document, dict):
            found.append(document)
    return found


def table(documents: list[dict[str, Any]]) -> str:
    """The documents as lines of a terminal."""
    if not documents:
        return "no loader is shown: programs show theirs with `with brimful.live.Live(loader):`"
    rows = [("PID", "PROGRAM", "SAMPLES/S", "BATCH", "WAIT", "BOTTLENECK", "SM", "GPU", "BUSY STAGES")]
    for told in documents:
        gpu, tuning = told.get("gpu") or {}, told.get("tuning") or {}
        busy = sorted((told.get("stages") or {}).items(), key=lambda row: -(row[1] or 0))
        stages = ", ".join(f"{name} {share:.0%}" for name, share in busy[:3] if share and name != "wait")
        batch = f"{tuning['batch_size']} ({tuning['phase']})" if tuning else "-"
        shares = (_percent(told.get("wait_share")), told.get("bottleneck") or "-")
        activity = (_percent(gpu.get("sm_active")), _percent(gpu.get("gpu_busy")))
        per_s = told.get("samples_per_s")
        name = str(told.get("name", "-"))[:24]
        rate = "-" if per_s is None else f"{per_s:,.0f}"
        rows.append((str(told.get("pid", "-")), name, rate, batch, *shares, *activity, stages or "-"))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main(argv: list[str]) -> int:
    """`brimful top`."""
    parser = argparse.ArgumentParser(prog="brimful top", description="Shows what running loaders do at the moment.")
    parser.add_argument("--once", action="store_true", help="show it once and end")
    parser.add_argument("--json", action="store_true", help="print documents as JSON, once")
    parser.add_argument("--every", type=seconds, default=1.0, metavar="SECONDS", help="time between two looks (1)")
    asked = parser.parse_args(argv)
    if asked.json:
        print(json.dumps({"version": _native.__version__, "loaders": running()}, indent=2))
        return 0
    if asked.once or not sys.stdout.isatty():
        print(table(running()))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            # To the top left, and what was below is cleared.
            print(f"\x1b[H\x1b[J{table(running())}", flush=True)
            time.sleep(asked.every)
    return 0


def _tuning(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if summary is None else {name: summary[name] for name in ("batch_size", "phase", "limit")}


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _is_alive(pid: Any) -> bool:
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

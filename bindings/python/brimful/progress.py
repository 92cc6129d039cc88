"""A line on standard error for what takes long; silent where nobody looks."""

from __future__ import annotations

import sys
import time

_QUIET_S = 1.0
_INTERVAL_S = 0.1
_WIDTH = 30


class ProgressLine:
    """Call it with (done, of). It appears after a second, on terminals only, and is wiped at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = time.monotonic()
        self._drawn = 0.0
        self._shown = False

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        finished = done >= of
        due = now - self._started > _QUIET_S and now - self._drawn > _INTERVAL_S
        if not sys.stderr.isatty() or not (due or (finished and self._shown)):
            return
        self._drawn = now
        if finished:
            sys.stderr.write("\r\x1b[K")
        else:
            filled = _WIDTH * done // max(of, 1)
            sys.stderr.write(f"\r\x1b[K{self._what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{of}")
            self._shown = True
        sys.stderr.flush()

"""A child process as a stream of bytes, whose failure is an error and not an early end.

A URL never goes through a shell here: commands are lists of arguments. Only `pipe:` has a shell, for the command that
the user wrote.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

# Statuses of a process whose output is not wanted any more: the signal, as the shell tells it, and as curl does.
_NOT_WANTED = (-signal.SIGPIPE, 128 + signal.SIGPIPE, 23)

GRACE_S = 5.0


class Pipe:
    """What a child process writes (`mode` "r") or reads ("w").

    Its exit status is checked at the end of the data and on closing. Closed before the end of its output, a process
    may fail by that, which is no error.

    Args:
        args: of `subprocess.Popen`.
        mode: "r..." or "w...".
        timeout: seconds that a process may take to end after its last byte was written or read.
        ignore_errors: take any exit status for success.
        ignore_status: more statuses that are no failure.
    """

    def __init__(
        self,
        *args: Any,
        mode: str = "rb",
        timeout: float = 7200.0,
        ignore_errors: bool = False,
        ignore_status: Sequence[int] = (),
        **kw: Any,
    ) -> None:
        if mode[:1] not in ("r", "w"):
            raise ValueError(f"mode={mode!r} is not known; a process is read ('rb') or written to ('wb')")
        self.args = args
        self.mode = mode
        self.timeout = timeout
        self.ignore_errors = ignore_errors
        self.ignore_status = [0, *ignore_status]
        self.status: int | None = None
        self._at_end = False
        end = {"stdout": subprocess.PIPE} if mode[0] == "r" else {"stdin": subprocess.PIPE}
        self.proc = subprocess.Popen(*args, **end, **kw)
        self.stream = self.proc.stdout if mode[0] == "r" else self.proc.stdin

    def read(self, size: int = -1) -> bytes:
        """Bytes; fewer than `size` only at the end, where the exit status is checked."""
        data = self.stream.read(size)
        if size < 0 or (size > 0 and len(data) < size):
            self._at_end = True
            self._wait(self.timeout)
        return data

    def readline(self, *args: Any) -> bytes:
        """A line; empty at the end, where the exit status is checked."""
        line = self.stream.readline(*args)
        if not line:
            self._at_end = True
            self._wait(self.timeout)
        return line

    def write(self, data: Any) -> int:
        """Writes all of `data`.

        Raises:
            OSError: if the process ended before, with its status.
        """
        try:
            return self.stream.write(data)
        except BrokenPipeError:
            self._wait(self.timeout)
            raise OSError(f"{self} ended with status {self.status} before all was written") from None

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        """Closes the process's end of the data and waits for it.

        Raises:
            OSError: if it failed.
        """
        if self.stream.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self.stream.close()
        if self.mode[0] == "w" or self._at_end:
            self._wait(self.timeout)
        else:
            self._leave()

    def _leave(self) -> None:
        """Ends a process whose output is not wanted any more; only a failure of its own, before that, is an error."""
        try:
            status = self.proc.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.proc.terminate()
            try:
                self.status = self.proc.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.status = self.proc.wait()
            return
        self.status = status
        if status not in _NOT_WANTED:
            self._check()

    def _wait(self, timeout_s: float) -> None:
        if self.status is None:
            self.status = self.proc.wait(timeout_s)
        self._check()

    def _check(self) -> None:
        if not self.ignore_errors and self.status not in self.ignore_status:
            raise OSError(f"{self} failed with exit status {self.status}; what it says is on stderr")

    def __str__(self) -> str:
        command = self.args[0] if self.args else ""
        return f"the command {command!r}"

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            if not self.stream.closed:
                self.stream.close()
            if self.proc.poll() is None:
                self.proc.terminate()
                self.proc.wait(GRACE_S)
        except Exception:  # noqa: BLE001 - nobody is left to be told
            pass

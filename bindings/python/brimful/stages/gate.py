"""Who may touch the generators that are global to the process: many that only watch them, or one that changes them."""

from __future__ import annotations

import contextlib
import threading


class Gate:
    """A lock for many at once or for one alone. Who wants to be alone goes before those that come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_taken = False
        self._waiting = 0

    @contextlib.contextmanager
    def shared(self):
        """Beside others that share it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken and not self._waiting)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self):
        """While nobody else is inside."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._is_taken and not self._inside)
                self._is_taken = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()

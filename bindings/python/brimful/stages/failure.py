"""Exceptions of a user's functions: of the same type as they were raised, with the step and the sample they are about.

They cross the border of a process whole where they can be pickled, and as the same type with their text where not.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from typing import Any


def name_of(step: Any) -> str:
    """The name of a step, as `explain()` and errors give it."""
    name = getattr(step, "__qualname__", None)
    if name is None and hasattr(step, "func"):
        return name_of(step.func)
    return name if isinstance(name, str) else type(step).__name__


def noted(error: BaseException, note: str) -> BaseException:
    """`error` with a note, shown below its message; one that would end the caller's loop becomes a RuntimeError."""
    if isinstance(error, (StopIteration, GeneratorExit)):
        other = RuntimeError(f"a step raised {type(error).__name__}")
        other.__cause__ = error
        error = other
    # As `add_note`, which Python 3.10 does not have.
    error.__notes__ = [*getattr(error, "__notes__", ()), note]
    return error


class WorkerTraceback(Exception):
    """The traceback of a worker process, as text; the cause of an error that came from there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


def packed(error: BaseException) -> bytes:
    """`error` for another process."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    notes = list(getattr(error, "__notes__", ()))
    try:
        body = pickle.dumps(error)
        # Some can be written and not be read again: those whose constructors want other arguments.
        pickle.loads(body)
    except Exception:
        body = None
    try:
        attributes = pickle.dumps(error.__dict__)
    except Exception:
        attributes = pickle.dumps({})
    kind = type(error)
    return pickle.dumps((body, kind.__module__, kind.__qualname__, str(error), attributes, notes, text))


def unpacked(data: bytes) -> BaseException:
    """The error that `packed` wrote in a worker process."""
    body, module, qualname, message, attributes, notes, text = pickle.loads(data)
    error = None
    if body is not None:
        try:
            error = pickle.loads(body)
        except Exception:
            error = None
    if not isinstance(error, BaseException):
        error = _of_type(module, qualname, message, attributes)
    error.__notes__ = notes
    error.__cause__ = WorkerTraceback(text)
    return error


def _of_type(module: str, qualname: str, message: str, attributes: bytes) -> BaseException:
    """An error of that type with that message, made without its constructor; a RuntimeError where there is no such."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        try:
            error = found.__new__(found, message)
            error.args = (message,)
            error.__dict__.update(pickle.loads(attributes))
            return error
        except Exception:
            pass
    return RuntimeError(f"{module}.{qualname}: {message}")

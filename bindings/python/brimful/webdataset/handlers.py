"""What to do about a failed sample: functions of the exception that say whether to go on.

True goes on without the sample, False ends the stream quietly; `reraise_exception` raises. None of them sleeps, as
webdataset's do for half a second a warning.
"""

from __future__ import annotations

import warnings


def reraise_exception(exn: Exception) -> bool:
    """Raises the exception."""
    raise exn


def ignore_and_continue(exn: Exception) -> bool:
    """Goes on without a word."""
    return True


def warn_and_continue(exn: Exception) -> bool:
    """Warns and goes on."""
    warnings.warn(repr(exn), stacklevel=2)
    return True


def ignore_and_stop(exn: Exception) -> bool:
    """Ends the stream without a word."""
    return False


def warn_and_stop(exn: Exception) -> bool:
    """Warns and ends the stream."""
    warnings.warn(repr(exn), stacklevel=2)
    return False

"""The exceptions of brimful: one class for each decision a program may want to take.

Every one carries where it happened and, where there is one, advice; nothing is raised from here but what the native
side found.
"""

from __future__ import annotations

__all__ = [
    "BrimfulError",
    "CancelledError",
    "DataWarning",
    "DecodeError",
    "DeviceError",
    "FieldValueError",
    "InvalidOptionError",
    "LimitError",
    "MissingFieldError",
    "NotFoundError",
    "ShardChangedError",
    "ShardError",
    "StateMismatchError",
    "TooManyErrors",
    "UnsupportedError",
]


class BrimfulError(Exception):
    """Base of all errors of brimful.

    Attributes:
        kind: what went wrong, as one snake_case word; each class has one of its own where none is given.
        hint: what can be done about it, or None.
        shard: path of the shard, or None.
        key: key of the sample, or None.
        field: extension of the field, or None.
        offset: byte offset inside the shard, or None.
    """

    kind = "cancelled"

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        hint: str | None = None,
        shard: str | None = None,
        key: str | None = None,
        field: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if kind is not None:
            self.kind = kind
        self.hint = hint
        self.shard = shard
        self.key = key
        self.field = field
        self.offset = offset

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self):
        parts = ("kind", "hint", "shard", "key", "field", "offset")
        return _rebuild, (type(self), self.message, {part: getattr(self, part) for part in parts})


class DataWarning(UserWarning):
    """Something in the data that was lost, left out, or looks odd; the work goes on."""


class ShardError(BrimfulError):
    """A shard that cannot be read: no tar archive, damaged, cut, or refused by the system."""

    kind = "bad_header"


class NotFoundError(ShardError, FileNotFoundError):
    """A pattern, file or folder that does not exist."""

    kind = "not_found"


class ShardChangedError(ShardError):
    """A shard was truncated or rewritten while it was in use."""

    kind = "shard_changed"


class DecodeError(BrimfulError):
    """An image that cannot be decoded."""

    kind = "decode"


class MissingFieldError(BrimfulError, KeyError):
    """A sample lacks a field that was asked for."""

    kind = "missing_field"


class FieldValueError(BrimfulError, ValueError):
    """A field whose value cannot be read as its type, or values that cannot share a batch."""

    kind = "field_value"


class InvalidOptionError(BrimfulError, ValueError):
    """An option, pattern or argument outside its legal range."""

    kind = "invalid_option"


class UnsupportedError(BrimfulError):
    """Something legal that this build does not do."""

    kind = "unsupported"


class LimitError(BrimfulError):
    """A size or count over a limit."""

    kind = "limit"


class TooManyErrors(BrimfulError):
    """More bad samples than `max_errors` allows."""

    kind = "too_many_errors"


class StateMismatchError(BrimfulError, ValueError):
    """A saved state that does not belong to this loader."""

    kind = "state_mismatch"


class CancelledError(BrimfulError, RuntimeError):
    """Work that was ended before its result arrived, or threads that belong to another process."""

    kind = "cancelled"


class DeviceError(BrimfulError, RuntimeError):
    """A GPU, its driver or one of its libraries is missing or failed."""

    kind = "device"


_CLASSES: dict[str, type[BrimfulError]] = {
    "not_found": NotFoundError,
    "io": ShardError,
    "invalid_option": InvalidOptionError,
    "not_tar": ShardError,
    "bad_header": ShardError,
    "truncated": ShardError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
    "grouping": ShardError,
    "missing_field": MissingFieldError,
    "decode": DecodeError,
    "field_value": FieldValueError,
    "shard_changed": ShardChangedError,
    "too_many_errors": TooManyErrors,
    "state_mismatch": StateMismatchError,
    "cancelled": CancelledError,
    "device": DeviceError,
}

# These happen to archives and to images; about an image they are decoding errors.
_OF_IMAGES = frozenset({"truncated", "unsupported", "limit"})


def error_of_kind(
    kind: str,
    message: str,
    hint: str | None,
    shard: str | None,
    key: str | None,
    field: str | None,
    offset: int | None,
    of_image: bool,
) -> BrimfulError:
    """The exception for an error of the native side."""
    is_image = kind in _OF_IMAGES and (of_image or field is not None)
    chosen = DecodeError if is_image else _CLASSES.get(kind, BrimfulError)
    return chosen(message, kind=kind, hint=hint, shard=shard, key=key, field=field, offset=offset)


def choice(option: str, word: str, choices: tuple[str, ...]) -> str:
    """`word`, if it is one of the values that `option` may have."""
    if word not in choices:
        known = ", ".join(f'"{name}"' for name in choices)
        raise InvalidOptionError(f'{option}="{word}" is not known', hint=f"{option} is one of {known}")
    return word


def _rebuild(cls: type[BrimfulError], message: str, parts: dict) -> BrimfulError:
    return cls(message, **parts)

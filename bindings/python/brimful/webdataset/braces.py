"""Brace patterns as bash expands them: `{a,b}`, `{000..146}`, `{0..10..2}`, nested; globs stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InvalidOptionError

NAMES_MAX = 10_000_000

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([a-zA-Z])\.\.([a-zA-Z])(?:\.\.(-?\d+))?")


def braceexpand(pattern: str) -> Iterator[str]:
    """The names that a pattern stands for, in order. A brace without a partner, or `{a}`, stands for itself."""
    place = 0
    while (start := _find(pattern, place)) is not None:
        parts, end = _split(pattern, start)
        if parts is None:
            place = start + 1
            continue
        rest = list(braceexpand(pattern[end + 1 :]))
        for part in parts:
            for middle in [part] if len(parts) > 1 and "{" not in part else braceexpand(part):
                for tail in rest:
                    yield pattern[:start] + middle + tail
        return
    yield pattern


def _find(pattern: str, place: int) -> int | None:
    while (place := pattern.find("{", place)) >= 0:
        # `${X}` is a variable, and a backslash takes the meaning away.
        if pattern[place - 1 : place] not in ("$", "\\"):
            return place
        place += 1
    return None


def _split(pattern: str, start: int) -> tuple[list[str] | None, int]:
    """The alternatives of the brace at `start` and the place of its partner; no alternatives, no expansion."""
    depth, parts, begin = 0, [], start + 1
    for place in range(start, len(pattern)):
        sign = pattern[place]
        if sign == "{":
            depth += 1
        elif sign == "," and depth == 1:
            parts.append(pattern[begin:place])
            begin = place + 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                if parts:
                    return [*parts, pattern[begin:place]], place
                return _range(pattern[begin:place]), place
    return None, start


def _range(text: str) -> list[str] | None:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    if found[4] is not None:
        first, last = ord(found[4]), ord(found[5])
        return [chr(code) for code in _steps(first, last, found[6], text)]
    padded = any(re.match(r"-?0\d", end) for end in (found[1], found[2]))
    width = max(len(found[1]), len(found[2])) if padded else 0
    return [f"{number:0{width}d}" for number in _steps(int(found[1]), int(found[2]), found[3], text)]


def _steps(first: int, last: int, step: str | None, text: str) -> range:
    by = abs(int(step)) if step else 1
    by = by or 1
    if abs(last - first) // by >= NAMES_MAX:
        raise InvalidOptionError(
            f"{{{text}}} stands for more than {NAMES_MAX:,} names", hint="is there a digit too many in it?"
        )
    return range(first, last + 1, by) if first <= last else range(first, last - 1, -by)

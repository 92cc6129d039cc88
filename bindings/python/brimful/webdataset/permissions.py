"""What data may make this process do beyond being read: run commands, or unpickle.

Permissions stand in an environment variable, so that worker processes have them however they are started; shards and
URLs cannot set it. webdataset's own switch, `utils.enforce_security`, is another matter: it forbids, this allows.
"""

from __future__ import annotations

import os

from ..errors import InvalidOptionError

VARIABLE = "BRIMFUL_WEBDATASET_ALLOW"

MEANINGS = {
    "pipe": "run the command of a `pipe:` URL",
    "pickle": "unpickle fields such as `pkl`, and all that torch.load can read",
    "torch": "read `pth` fields with torch.load(weights_only=True)",
}


def allow(*names: str) -> None:
    """Permits what `names` say, in this process and in those it starts: "pipe", "pickle", "torch".

    `BRIMFUL_WEBDATASET_ALLOW=pipe,pickle` in the environment does the same.
    """
    _check(names)
    os.environ[VARIABLE] = ",".join(sorted(granted() | set(names)))


def forbid(*names: str) -> None:
    """Takes permissions back; without names, all of them."""
    _check(names)
    os.environ[VARIABLE] = ",".join(sorted(granted() - set(names or MEANINGS)))


def granted() -> set[str]:
    """The permissions that are in force."""
    return {name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()}


def demand(name: str, what: str, instead: str) -> None:
    """Raises unless `name` is permitted.

    Raises:
        InvalidOptionError: which says `what` was refused, how to permit it, and what could be done `instead`.
    """
    if name not in granted():
        raise InvalidOptionError(
            f"{what} is off: shards and URLs from elsewhere could make this process run anything",
            hint=f'if you trust where they come from, brimful.webdataset.allow("{name}") or {VARIABLE}={name} in the '
            f"environment turns it on; {instead}",
        )


def _check(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in MEANINGS]
    if unknown:
        known = "; ".join(f'"{name}": {meaning}' for name, meaning in MEANINGS.items())
        raise InvalidOptionError(f"there is no permission {unknown[0]!r}", hint=known)

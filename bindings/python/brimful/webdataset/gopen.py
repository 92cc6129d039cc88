"""Opens whatever a URL names as a stream of bytes: `gopen(url)`, and the table of schemes that it looks into.

URLs are arguments of commands, never text for a shell. `pipe:` runs its command only when that is allowed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from . import permissions, utils
from .commands import Pipe
from .http import HttpStream

__all__ = ["Pipe", "gopen", "gopen_schemes", "reader", "rewrite_url"]

info: dict[str, Any] = {}

# What of a command asks for a shell.
_SHELL_SIGNS = re.compile(r"[|&;<>()$`\\*?\[\]#~=%!{}\n]")

_CURL = ["curl", "--fail", "--silent", "--show-error", "--location", "--connect-timeout", "30"]


def gopen(url: str, mode: str = "rb", bufsize: int = 8192, **kw: Any) -> Any:
    """Opens `url` for reading ("rb") or writing ("wb").

    `-` is standard input or output, a name without a scheme or `file:` a file; `gopen_schemes` knows the rest and may
    be changed. GOPEN_BUFFER is the buffer's size for files, GOPEN_REWRITE a list `from=to;from=to` of beginnings.

    Raises:
        ValueError: for a scheme that nothing opens, or one that is not allowed.
        OSError: if it cannot be opened.
    """
    assert mode in ("rb", "wb"), f'mode={mode!r}: streams are opened as "rb" or "wb"'
    if int(os.environ.get("GOPEN_VERBOSE", 0)):
        print("GOPEN", url, info, file=sys.stderr)
    if url == "-":
        return sys.stdin.buffer if mode == "rb" else sys.stdout.buffer
    url = rewrite_url(url)
    path = local_path(url)
    if path is not None:
        if utils.enforce_security:
            raise ValueError(f"gopen: unsafe_gopen is False, cannot open local files: {url}")
        return open(path, mode, buffering=int(os.environ.get("GOPEN_BUFFER", -1)))
    opener = gopen_schemes.get(urlparse(url).scheme, gopen_schemes["__default__"])
    return opener(url, mode, bufsize, **kw)


def local_path(url: str) -> str | None:
    """The path that a URL without a scheme or with `file:` names; None for any other."""
    parts = urlparse(url)
    if parts.scheme == "file":
        return url2pathname(parts.path)
    return url if parts.scheme == "" else None


def reader(url: str, **kw: Any) -> Any:
    """Opens `url` for reading."""
    return gopen(url, "rb", **kw)


def rewrite_url(url: str) -> str:
    """`url` with its beginning replaced as GOPEN_REWRITE says; the first rule that fits counts."""
    rules = os.environ.get("GOPEN_REWRITE")
    if not rules:
        return url
    if utils.enforce_security:
        raise ValueError("rewrite_url: unsafe_gopen is False, cannot rewrite URLs using environment variables")
    for rule in filter(None, rules.split(";")):
        old, equals, new = rule.partition("=")
        if not equals:
            raise ValueError(f"GOPEN_REWRITE has a rule without '=': {rule!r}; rules are old=new, with ; between them")
        if url.startswith(old):
            return new + url[len(old) :]
        if re.match(old, url):
            return re.sub("^" + old, new, url)
    return url


def gopen_file(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Opens a file."""
    path = local_path(url)
    return open(url if path is None else path, mode)


def gopen_pipe(url: str, mode: str = "rb", bufsize: int = 8192) -> Pipe:
    """Runs the command behind `pipe:`; it has a shell only where it asks for one, by signs such as `|` or `>`."""
    if utils.enforce_security:
        raise ValueError(f"gopen_pipe: unsafe_gopen is False, cannot open pipe URLs: {url}")
    permissions.demand("pipe", f"running the command of {url}", "a file, an http(s) URL or an opener of your own in "
                       "gopen_schemes needs no permission")  # fmt: skip
    command = url.removeprefix("pipe:")
    if _SHELL_SIGNS.search(command):
        return Pipe(["/bin/sh", "-c", command], mode=mode, bufsize=bufsize)
    return Pipe(shlex.split(command), mode=mode, bufsize=bufsize)


def gopen_http(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Reads from a web server; writing is curl's PUT."""
    if mode[0] == "r":
        return HttpStream(url)
    return _command([*_CURL, "--request", "PUT", "--upload-file", "-"], url, mode, bufsize)


def gopen_curl(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Reads and writes through curl."""
    if mode[0] == "r":
        return _command([*_CURL, "--retry", "5"], url, mode, bufsize)
    return _command([*_CURL, "--upload-file", "-"], url, mode, bufsize)


def gopen_gsutil(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Reads and writes Google's storage through gsutil."""
    return _command(["gsutil", "cat"] if mode[0] == "r" else ["gsutil", "cp", "-"], url, mode, bufsize)


def gopen_ais(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Reads and writes AIStore through its command."""
    if mode[0] == "r":
        return Pipe(["ais", "get", _plain(url), "-"], mode=mode, bufsize=bufsize)
    return _command(["ais", "put", "-"], url, mode, bufsize)


def gopen_htgs(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Reads `htgs://`, which is Google's storage, through curl."""
    _reading_only(url, mode)
    return gopen_curl(re.sub(r"(?i)^htgs://", "gs://", url), mode, bufsize)


def gopen_hf(url: str, mode: str = "rb", bufsize: int = 8192) -> Any:
    """Reads a file of the Hugging Face Hub over http, with the user's token where there is one."""
    _reading_only(url, mode)
    try:
        from huggingface_hub import HfFileSystem, get_token, hf_hub_url
    except ImportError as error:
        raise ImportError(f"{url} is found by the package huggingface_hub: `pip install huggingface_hub`") from error
    place = HfFileSystem().resolve_path(url)
    resolved = hf_hub_url(
        repo_id=place.repo_id, filename=place.path_in_repo, repo_type=place.repo_type, revision=place.revision
    )
    token = get_token()
    return HttpStream(resolved, {"Authorization": f"Bearer {token}"} if token else None)


def gopen_error(url: str, *args: Any, **kw: Any) -> Any:
    """Refuses a scheme that nothing opens."""
    scheme = urlparse(url).scheme
    if scheme == "s3":
        advice = f"'pipe:aws s3 cp {url} -' reads it once allow(\"pipe\") is given"
    else:
        known = ", ".join(sorted(name for name in gopen_schemes if name != "__default__"))
        advice = f"known are file, {known}"
    raise ValueError(
        f"{url}: no opener for {scheme}: ; {advice}, and gopen_schemes[{scheme!r}] = function(url, mode, bufsize) "
        "brings one of your own"
    )


gopen_schemes: dict[str, Callable[..., Any]] = {
    "__default__": gopen_error,
    "pipe": gopen_pipe,
    "http": gopen_http,
    "https": gopen_http,
    "sftp": gopen_curl,
    "ftps": gopen_curl,
    "scp": gopen_curl,
    "gs": gopen_gsutil,
    "ais": gopen_ais,
    "htgs": gopen_htgs,
    "hf": gopen_hf,
}
gopen_schemes.update(dict.fromkeys(filter(None, os.environ.get("USE_AIS_FOR", "").split(":")), gopen_ais))


def _command(command: list[str], url: str, mode: str, bufsize: int) -> Pipe:
    return Pipe([*command, _plain(url)], mode=mode, bufsize=bufsize)


def _plain(url: str) -> str:
    """A URL that a command cannot take for an option."""
    if url.startswith("-"):
        raise ValueError(f"{url!r} would be an option of a command; write the URL with its scheme")
    return url


def _reading_only(url: str, mode: str) -> None:
    if mode[0] != "r":
        raise ValueError(f"{url} can be read, not written to; write a file, and upload it")

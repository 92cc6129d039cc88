"""A file on a web server as a stream: its length is checked, and a broken connection is taken up where it broke."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

TIMEOUT_S = 60.0
ATTEMPTS = 6
FIRST_PAUSE_S = 0.5

# Answers after which the same request may succeed.
_PASSING = (408, 425, 429, 500, 502, 503, 504)


class HttpStream:
    """The body that a server gives for `url`.

    Args:
        url: http or https.
        secrets: headers that are not sent on to where the server redirects.
    """

    def __init__(self, url: str, secrets: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._secrets = dict(secrets or {})
        self._offset = 0
        self._size: int | None = None
        self._tag: str | None = None
        self._failures = 0
        self._body: Any = None
        self._open()

    def read(self, size: int = -1) -> bytes:
        """Bytes; fewer than `size` only at the end.

        Raises:
            OSError: if the body ends before its announced length and cannot be taken up again.
        """
        parts, left = [], size
        while left:
            try:
                data = self._body.read(left if left > 0 else 1 << 20)
            except (OSError, http.client.HTTPException) as error:
                self._resume(error)
                continue
            if not data:
                if self._size is None or self._offset >= self._size:
                    break
                self._resume(OSError(f"{self.url} ended after {self._offset} of {self._size} bytes"))
                continue
            self._offset += len(data)
            self._failures = 0
            parts.append(data)
            left = left - len(data) if left > 0 else left
        return b"".join(parts)

    def _resume(self, error: Exception) -> None:
        self._body.close()
        if self._size is None:
            raise OSError(f"{self.url} broke off after {self._offset} bytes: {error}") from error
        self._pause(error)
        self._open()

    def _open(self) -> None:
        while True:
            try:
                self._body = urllib.request.urlopen(self._request(), timeout=TIMEOUT_S)
                break
            except urllib.error.HTTPError as error:
                if error.code not in _PASSING:
                    raise
                self._pause(error)
            except (OSError, http.client.HTTPException) as error:
                # What breaks before the answer comes as it is, what breaks before the request as a URLError.
                reason = getattr(error, "reason", error)
                if isinstance(reason, (ConnectionRefusedError, FileNotFoundError, http.client.InvalidURL)):
                    raise
                self._pause(error)
        headers = self._body.headers
        if self._offset == 0:
            length = headers.get("Content-Length")
            self._size = int(length) if length is not None and length.isdigit() else None
            self._tag = headers.get("ETag") or headers.get("Last-Modified")
        elif self._body.status != 206:
            raise OSError(f"{self.url} broke off after {self._offset} bytes, and its server gives no part of a file")
        elif self._tag is not None and (headers.get("ETag") or headers.get("Last-Modified")) != self._tag:
            raise OSError(f"{self.url} was replaced by another file while it was read")

    def _request(self) -> urllib.request.Request:
        request = urllib.request.Request(self.url, headers={"User-Agent": "brimful", "Accept-Encoding": "identity"})
        for name, value in self._secrets.items():
            request.add_unredirected_header(name, value)
        if self._offset:
            request.add_header("Range", f"bytes={self._offset}-")
        return request

    def _pause(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise error
        time.sleep(FIRST_PAUSE_S * 2 ** (self._failures - 1))

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._body.close()

    def __enter__(self) -> HttpStream:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

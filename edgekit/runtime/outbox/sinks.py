"""Destinations of an outbox: a folder, a server over HTTP. (mqtt.py: a broker.)

A sink has ``send(parcel)``, which returns once the other side has stored the row, and ``close()``. Its
exceptions say who is at fault: ``RowRefusedError``: this row; ``SinkDownError``: the destination is down.
After any other exception the outbox finds out by trying another row (outbox.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgekit.errors import UsageError
from edgekit.runtime.outbox.rows import Parcel
from edgekit.system.atomic_files import write_atomically

if TYPE_CHECKING:
    import ssl

ANSWER_LIMIT_BYTES = 65_536


class RowRefusedError(Exception):
    """The destination refuses this row; others may be accepted."""


class SinkDownError(Exception):
    """The destination accepts nothing at present.

    Attributes:
        retry_after_s: When it wants to be retried. None means it did not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Sink(Protocol):
    """Destination of an outbox's rows."""

    def send(self, parcel: Parcel) -> None:
        """Deliver one row; returns when it is stored there."""

    def close(self) -> None: ...


class FolderSink:
    """Writes each row to a file of its own, ``KIND-KEY`` and a suffix, atomically."""

    def __init__(self, folder: str | Path, suffix: str = ".bin") -> None:
        if not re.fullmatch(r"(\.[A-Za-z0-9]{1,16})*", suffix):
            raise UsageError(f"{suffix!r} is not a file suffix, e.g. .json")
        self._folder, self._suffix = Path(folder), suffix

    def send(self, parcel: Parcel) -> None:
        path = self._folder / f"{parcel.kind}-{parcel.key}{self._suffix}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # the key exists: it was delivered already
                write_atomically(path, [parcel.body])
        except OSError as problem:
            raise SinkDownError(f"{path.parent}: {problem.strerror or problem}") from None

    def close(self) -> None:
        """Do nothing: a folder needs no closing."""


class HttpSink:
    """Sends each row as a POST: its key in ``Idempotency-Key``, its kind in ``EdgeKit-Kind``.

    2xx and 409 (it exists already): delivered. 400, 413, 415 and 422: the row is refused. 401 to 405, 408,
    425, 429, redirections and 503: the server is down. Others, above all 500, leave open who is at fault.

    Args:
        url: The endpoint, e.g. ``https://backend.example/rows``.
        headers: Headers of every request, e.g. ``{"Authorization": "Bearer ..."}``.
        context: For https. None means the system's certificates.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = 10.0,
        content_type: str = "application/octet-stream",
        context: ssl.SSLContext | None = None,
    ) -> None:
        from edgekit.runtime import http_connection  # here: it imports sockets, which a folder does not need

        self._wire = http_connection.HttpConnection(
            url, {"Content-Type": content_type, **(headers or {})}, context
        )
        self._no_answer, self._timeout_s, self._url = http_connection.ConnectionFailedError, timeout_s, url

    def send(self, parcel: Parcel) -> None:
        headers = {"Idempotency-Key": parcel.key, "EdgeKit-Kind": parcel.kind}
        while True:
            is_reused = self._wire.is_open
            try:
                end_s = time.monotonic() + self._timeout_s
                reply = self._wire.exchange("POST", "", end_s, ANSWER_LIMIT_BYTES, [parcel.body], headers)
                break
            except self._no_answer as problem:
                if problem.unsent:
                    raise SinkDownError(f"{self._url}: {problem}") from None
                if not is_reused:
                    raise
                # A server closes idle connections; a new one shows whether this row is at fault.
        status = reply.status
        if status in (400, 413, 415, 422):
            raise RowRefusedError(f"{self._url} answered {status}")
        if 300 <= status < 400 or status in (401, 402, 403, 404, 405, 408, 425, 429, 503):
            raise SinkDownError(f"{self._url} answered {status}", reply.retry_after_s)
        if not (200 <= status < 300 or status == 409):
            raise OSError(f"{self._url} answered {status}")

    def close(self) -> None:
        self._wire.close()

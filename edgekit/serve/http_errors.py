"""Errors as answers over HTTP: the protocol's ``{"error": "..."}``."""

from __future__ import annotations

import json

from starlette.responses import Response

from edgekit.serve.service import public_error


def error_response(message: str, status: int, retry_after_s: int | None = None) -> Response:
    """Return an error as a response."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status in (401, 403, 408, 413, 415):
        headers["Connection"] = "close"  # what is left of the body is not read
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = json.dumps({"error": message}).encode()
    return Response(content, status, {**headers, "Content-Type": "application/json"})


def response_of(problem: Exception) -> Response:
    """Return the HTTP response for an error, with the text of :func:`public_error`."""
    error = public_error(problem)
    return error_response(str(error), error.status, error.retry_after_s)

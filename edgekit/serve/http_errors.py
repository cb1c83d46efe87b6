"""Errors as answers over HTTP: the protocol's ``{"error": "..."}``."""

from __future__ import annotations

import json
import sys
import traceback

from starlette.responses import Response

from edgekit.errors import EdgeKitError, UsageError
from edgekit.serve.inference_requests import RequestError


def error_response(message: str, status: int, retry_after_s: int | None = None) -> Response:
    """An error as a response."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status in (401, 403, 408, 413, 415):
        headers["Connection"] = "close"  # what is left of the body is not read
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = json.dumps({"error": message}).encode()
    return Response(content, status, {**headers, "Content-Type": "application/json"})


def response_of(problem: Exception) -> Response:
    """What a client is told; what an engine says, which may name paths of this machine, goes to the log."""
    if isinstance(problem, RequestError):
        return error_response(str(problem), problem.status, problem.retry_after_s)
    if isinstance(problem, UsageError):
        return error_response(str(problem), 400)
    if isinstance(problem, EdgeKitError):
        print(f"error: {problem}", file=sys.stderr, flush=True)
        return error_response("no variant of the model ran this input; the server's log says why", 500)
    traceback.print_exception(problem, file=sys.stderr)
    return error_response("the server failed: this is a bug of it; its log says where", 500)

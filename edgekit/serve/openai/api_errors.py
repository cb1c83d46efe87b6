"""Errors in the form of OpenAI's API: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

import json

from starlette.responses import Response

from edgekit.errors import ContextLengthError
from edgekit.serve.http_errors import error_response
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.service import public_error
from edgekit.tensor_spec import Json

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 413: "request_too_large", 429: "rate_limit_exceeded"}


class ApiError(RequestError):
    """Error of one field of a request.

    Attributes:
        code: The API's code of the error, or None.
    """

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None):
        super().__init__(message, status)
        self.param, self.code = param, code


def error_object(problem: Exception) -> tuple[RequestError, dict[str, Json]]:
    """Return an error for a client, and its body."""
    error = public_error(problem)
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    param = error.param if isinstance(error, ApiError) else None
    code = error.code if isinstance(error, ApiError) else None
    if isinstance(problem, ContextLengthError):
        code = "context_length_exceeded"
    body: dict[str, Json] = {
        "message": str(error),
        "type": TYPES.get(error.status, kind),
        "param": param,
        "code": code or CODES.get(error.status),
    }
    return error, {"error": body}


def response_of(problem: Exception) -> Response:
    """Return the HTTP response for an error."""
    error, body = error_object(problem)
    response = error_response("", error.status, error.retry_after_s)
    response.body = json.dumps(body).encode()
    response.headers["content-length"] = str(len(response.body))
    return response

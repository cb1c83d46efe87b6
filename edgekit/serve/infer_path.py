"""``POST /v2/models/NAME[/versions/V]/infer``, the path that carries the load, as an ASGI app of its own.

Starlette's layers, its request and its response cost as much again as what is done here, so the app comes
here without them (``app.py``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from edgekit.serve.http_errors import response_of
from edgekit.serve.inference_requests import LENGTH, Request, json_bytes
from edgekit.serve.request_memory import (
    Lease,
    began_s,
    headers_of,
    host_of,
    parsed_bytes,
    read_body,
)
from edgekit.serve.request_traces import traced
from edgekit.serve.served_model import ServedModel
from edgekit.serve.service import Service

JSON_BYTES, COPIED_BYTES = 64 << 10, 4 << 20
"""Bodies with more JSON, or more of all, are read in a thread: the others' connections go on meanwhile."""
PIECE_BYTES = 64 << 10
"""Size of the pieces of a response. The memory of the last one is released before the client has read it."""
JSON_VALUES = 4096
"""Answers with more values in JSON are written in one."""
_LENGTH = LENGTH.encode()
_START = {"type": "http.response.start", "status": 200}


class InferPath:
    """Answers requests for inference."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle an ASGI request; ``scope["path_params"]`` names the model."""
        with self._service.memory.lease(host_of(scope)) as lease:
            try:
                content, headers = await self._answer(scope, receive, lease)
            except Exception as problem:
                await response_of(problem)(scope, receive, send)
                return
            response_headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            response_headers.append((b"content-length", str(len(content)).encode()))
            await send({**_START, "headers": response_headers})
            for start in range(0, len(content) or 1, PIECE_BYTES):  # each waits for the client to read on
                piece, more = content[start : start + PIECE_BYTES], start + PIECE_BYTES < len(content)
                await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _answer(self, scope: Any, receive: Any, lease: Lease) -> tuple[bytes, Mapping[str, str]]:
        service, since_s = self._service, began_s(scope)
        # So long the event loop took to come here; the answer will wait for it as long.
        began_reading_s = time.monotonic()
        loop_s = max(0.0, began_reading_s - since_s)
        headers, named = headers_of(scope), scope["path_params"]
        service.access.check(headers)
        version = service.version_for(named["model"], named.get("version"), headers)
        key = await service.key(named["model"], version)
        with service.models.used(key) as model:
            body = await read_body(headers, receive, model.limit_bytes, lease)
            reading_s = time.monotonic() - began_reading_s
            with service.admitted():
                with traced("prepare"):
                    request = await self._read(model, body, headers.get(_LENGTH), lease)
                del body
                lease.hold(model.run_bytes)
                arrays = await service.run(model, request, since_s - loop_s, reading_s)
                if (
                    sum(arrays[name].size for name, binary in request.requested_outputs.items() if not binary)
                    > JSON_VALUES
                ):
                    return await run_in_threadpool(model.answer, request, arrays)
                return model.answer(request, arrays)

    async def _read(self, model: ServedModel, body: bytes, length: bytes | None, lease: Lease) -> Request:
        head_size = None if length is None else length.decode("latin-1")
        json_size = len(body) if head_size is None else json_bytes(body, head_size)
        lease.hold(len(body) + model.run_bytes + parsed_bytes(body[:json_size]))
        if len(body) > COPIED_BYTES or json_size > JSON_BYTES:
            return await run_in_threadpool(model.read, body, head_size)
        return model.read(body, head_size)


def named_in(path: str) -> dict[str, str] | None:
    """Return the model, and the version if there is one, in an inference path, or None for any other path.

    >>> named_in("/v2/models/net/infer"), named_in("/v2/models/net/versions/3/infer")
    ({'model': 'net'}, {'model': 'net', 'version': '3'})
    >>> named_in("/v2/models/net"), named_in("/v2/models//infer")
    (None, None)
    """
    if not path.endswith("/infer") or not path.startswith("/v2/models/"):
        return None
    parts = path.split("/")
    if len(parts) == 5 and parts[3]:
        return {"model": parts[3]}
    if len(parts) == 7 and parts[3] and parts[4] == "versions" and parts[5]:
        return {"model": parts[3], "version": parts[5]}
    return None

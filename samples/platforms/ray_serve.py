"""A bundle in Ray Serve, by the Open Inference Protocol: ``serve run ray_serve:app``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgekit.errors import BusyError
from edgekit.serve.inference_requests import LENGTH, RequestError
from edgekit.serve.served_model import ServedModel, ServeOptions


@serve.deployment(
    max_ongoing_requests=32,
    autoscaling_config={"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 16},
)
class Detector:
    """A replica, with a session and the queue of ``edgekit serve``."""

    def __init__(self, path: str) -> None:
        self._served = ServedModel("detector", "1", (Path(path),), ServeOptions(None, 1, 1000.0))

    async def __call__(self, request: Request) -> Response:
        try:
            parsed = self._served.read(await request.body(), request.headers.get(LENGTH))
            arrays = await asyncio.wrap_future(self._served.run(parsed))
        except RequestError as problem:
            return JSONResponse({"error": str(problem)}, problem.status)
        except BusyError as problem:
            return JSONResponse({"error": str(problem)}, 503, {"Retry-After": "1"})
        content, headers = self._served.answer(parsed, arrays)
        return Response(content, headers=dict(headers))

    async def check_health(self) -> None:
        """Run the golden vector's input: Ray replaces a replica whose model does not respond."""
        if golden := self._served.session.bundle.golden:
            await asyncio.to_thread(self._served.session.run, golden[0][0])


app = Detector.bind(os.environ.get("BUNDLE", "detector.edgekit"))  # type: ignore[attr-defined]

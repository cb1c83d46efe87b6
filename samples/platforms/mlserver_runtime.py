"""A bundle as a model of MLServer, with the queue, deadlines and fallbacks of ``edgekit serve``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri

from edgekit.errors import BusyError, EdgeKitError
from edgekit.serve.inference_requests import Request, RequestError, specs_of
from edgekit.serve.served_model import ServedModel, ServeOptions


class EdgeKitRuntime(MLModel):  # type: ignore[misc]
    """A bundle in MLServer."""

    async def load(self) -> bool:
        path = Path(await get_model_uri(self._settings))
        options = ServeOptions(**(self._settings.parameters.extra or {}))
        self._served = await asyncio.to_thread(ServedModel, self.name, "1", [path], options)
        return True

    async def unload(self) -> bool:
        await asyncio.to_thread(self._served.close)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        try:
            arrays = await asyncio.wrap_future(self._served.run(self._request(payload)))
        except RequestError as problem:
            raise MLServerError(str(problem), problem.status) from None
        except EdgeKitError as problem:
            raise MLServerError(str(problem), 503 if isinstance(problem, BusyError) else 500) from None
        outputs = [NumpyCodec.encode_output(name, array) for name, array in arrays.items()]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)

    def _request(self, payload: InferenceRequest) -> Request:
        tensors = [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in payload.inputs]
        specs = specs_of(tensors, self._served.shapes)
        feeds: dict[str, Any] = {
            spec.name: NumpyCodec.decode_input(tensor).astype(spec.dtype, copy=False).reshape(spec.shape)
            for tensor, spec in zip(payload.inputs, specs, strict=True)
        }
        return Request(feeds, {}, payload.id or "", None)

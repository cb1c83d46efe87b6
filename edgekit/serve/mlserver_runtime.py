"""A runtime for MLServer: a bundle as one of its models. ``model-settings.json``:

    {"name": "detector", "implementation": "edgekit.serve.mlserver_runtime.EdgeKitRuntime",
     "parameters": {"uri": "./detector.edgekit", "extra": {"deadline_ms": 250, "threads": 2}}}

MLServer has the server, its protocols and its workers; the queue with its deadlines, the checks of the inputs
and the session with its fallbacks are those of ``edgekit serve``. Batches are EdgeKit's if ``extra`` names a
bundle with a larger batch size as ``batched``; MLServer's own adaptive batching must then be off.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError, MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataModelResponse, MetadataTensor
from mlserver.utils import get_model_uri

from edgekit.errors import BusyError, EdgeKitError, UsageError
from edgekit.runtime.remote.inference_protocol import about_tensors
from edgekit.serve.inference_requests import (
    Request,
    RequestError,
    priority,
    specs_of,
    timeout_ms,
)
from edgekit.serve.served_model import ServedModel, ServeOptions
from edgekit.tensor_spec import Array, TensorSpec


class EdgeKitRuntime(MLModel):  # type: ignore[misc]
    """A bundle in MLServer."""

    async def load(self) -> bool:
        """Load the bundle of ``parameters.uri``.

        Raises:
            As ``ServedModel``.
        """
        paths = [Path(await get_model_uri(self._settings))]
        extra = dict(self._settings.parameters.extra or {})
        if "batched" in extra:
            paths.append(Path(extra.pop("batched")))
        try:
            options = ServeOptions(**extra)
        except TypeError as problem:
            raise UsageError(f"parameters.extra of {self.name}: {problem}") from None
        self._served = await asyncio.to_thread(ServedModel, self.name, self.version or "1", paths, options)
        about = about_tensors(self._served.shapes)
        self.inputs, self.outputs = ([MetadataTensor(**row) for row in about[kind]] for kind in about)
        return True

    async def unload(self) -> bool:
        """Free the engine."""
        await asyncio.to_thread(self._served.close)
        return True

    async def metadata(self) -> MetadataModelResponse:
        """Return the bundle's inputs and outputs."""
        return MetadataModelResponse(
            name=self.name, platform="edgekit", versions=[], inputs=self.inputs, outputs=self.outputs
        )

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run once.

        Raises:
            InferenceError: the inputs are not the model's.
            MLServerError: 503: refused, because it would be answered too late.
        """
        try:
            request = self._request(payload)
            arrays = await asyncio.wrap_future(self._served.run(request))
        except RequestError as problem:
            raise MLServerError(str(problem), problem.status) from None
        except BusyError as problem:
            raise MLServerError(str(problem), 503) from None
        except EdgeKitError as problem:
            raise InferenceError(str(problem)) from None
        outputs = [NumpyCodec.encode_output(name, arrays[name]) for name in request.requested_outputs]
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs
        )

    def _request(self, payload: InferenceRequest) -> Request:
        session = self._served.session
        tensors = [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in payload.inputs]
        specs = specs_of(tensors, self._served.shapes)
        feeds = {spec.name: _array(tensor, spec) for tensor, spec in zip(payload.inputs, specs, strict=True)}
        params = {} if payload.parameters is None else payload.parameters.model_dump(exclude_none=True)
        names = [spec.name for spec in session.outputs]
        requested = [output.name for output in payload.outputs or []] or names
        if unknown := [name for name in requested if name not in names]:
            raise RequestError(f"there is no output {unknown[0][:64]!r}; the model has {', '.join(names)}")
        return Request(
            feeds, dict.fromkeys(requested, True), payload.id or "", timeout_ms(params), priority(params)
        )


def _array(tensor: Any, spec: TensorSpec) -> Array:
    array: Array = NumpyCodec.decode_input(tensor)
    return array.astype(spec.dtype, copy=False).reshape(spec.shape)

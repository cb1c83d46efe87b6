"""Preparation and decoding for Triton's Python backend: the ``model.py`` of ``edgekit export --triton``.

It needs numpy and ``edgekit-sdk`` in Triton's Python. Which of the two a model is, its inputs say.
https://github.com/triton-inference-server/python_backend
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EdgeKitError
from edgekit.processing.card import parse_card
from edgekit.processing.processing import decode, placement, prepare


class TritonPythonModel:
    """One instance; Triton makes and calls it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the card beside the script."""
        config = json.loads(args["model_config"])
        self._card = parse_card(json.loads(Path(__file__).with_name("card.json").read_text("utf-8")))
        self._inputs = [entry["name"] for entry in config["input"]]
        self._outputs = [entry["name"] for entry in config["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response for each request. The response to a failed request has its error."""
        return [self._answered(request) for request in requests]

    def _answered(self, request: Any) -> Any:
        import triton_python_backend_utils as backend  # exists inside of Triton alone

        inputs = {name: backend.get_input_tensor_by_name(request, name).as_numpy() for name in self._inputs}
        try:
            outputs = self._prepared(inputs["IMAGE"]) if "IMAGE" in inputs else self._decoded(inputs)
        except (EdgeKitError, ValueError) as problem:
            return backend.InferenceResponse(error=backend.TritonError(str(problem)))
        return backend.InferenceResponse([backend.Tensor(name, outputs[name]) for name in self._outputs])

    def _prepared(self, image: Any) -> dict[str, Any]:
        feeds, _ = prepare(self._card, image)
        height, width = image.shape[:2]
        return {**feeds, "SIZE": np.array([width, height], np.int32)}

    def _decoded(self, config: dict[str, Any]) -> dict[str, Any]:
        width, height = map(int, config.pop("SIZE"))
        prediction = decode(self._card, config, placement(self._card, width, height))
        return {"PREDICTION": np.array([json.dumps(prediction.as_json()).encode()], np.object_)}

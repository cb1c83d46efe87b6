"""Run a model on the TensorRT of the system. Device side: numpy, tensorrt and libcudart."""

from __future__ import annotations

from edgekit.errors import MissingDependency

MODEL_FILE = "model.onnx"
SETTINGS_FILE = "trt.json"


def engine_version() -> str:
    raise MissingDependency("tensorrt", "running a TensorRT engine", "it comes with JetPack 6.1 or newer")

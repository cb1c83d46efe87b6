"""Run an OpenVINO IR on the CPU plugin. Device side: numpy and openvino."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import EngineError, MissingDependency
from edgekit.target import Array, Json, TensorSpec

XML_FILE, BIN_FILE = "model.xml", "model.bin"

PRECISION_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""OpenVINO's name of an element type -> ours."""

COPIED_BYTES = 16384
"""Inputs up to this size are copied into the request's own tensor; larger ones are handed over in place."""


def engine_version() -> str:
    """Name and version of the installed engine, e.g. ``OpenVINO 2026.4.1``.

    Raises:
        MissingDependency: openvino is not installed.
    """
    return f"OpenVINO {openvino().__version__.partition('-')[0]}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OpenvinoRunner:
    """Load ``model.xml`` with ``model.bin``, which is mapped, not read.

    ``threads=None`` takes OpenVINO's default, one a physical core.

    Raises:
        MissingDependency: openvino is not installed.
        EngineError: OpenVINO refused the model.
    """
    core = openvino().Core()
    settings = {
        # The default follows the chip: bf16 or fp16 where it has them, 29 dB from the answer of fp32.
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        # Pinned, two sessions in one process sit on the same core and share it: 0.99x of one, unpinned 1.85x.
        "ENABLE_CPU_PINNING": "NO",
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = str(threads)
    path = files[XML_FILE]
    try:
        compiled = core.compile_model(core.read_model(str(path), str(files[BIN_FILE])), "CPU", settings)
        return OpenvinoRunner(compiled, inputs, outputs)
    except RuntimeError as problem:
        raise EngineError(f"{engine_version()} did not load {path}: {plain(problem)}") from None


class OpenvinoRunner:
    """A compiled IR.

    ``infer()`` on tensors set beforehand is the cheapest call (7 us; ``compiled(x)`` 14, ``infer([x])`` 77).
    A small input is copied into the request's own tensor, which costs less than wrapping the caller's array;
    a large one is wrapped, so that it isn't copied. Outputs are copied out, for they are the caller's.
    """

    device = "CPU"

    def __init__(self, compiled: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        hint = compiled.get_property("INFERENCE_PRECISION_HINT").to_dtype().name
        self.precision = PRECISION_NAMES.get(hint, hint)
        self._tensor = openvino().Tensor
        places = {name: i for i, port in enumerate(compiled.inputs) for name in port.get_names()}
        # The ONNX reader drops inputs that nothing reads.
        read = [(spec, places[spec.name]) for spec in inputs if spec.name in places]
        self._copied: list[tuple[str, Array]] = []
        self._shared: list[tuple[str, int]] = []
        for spec, place in read:
            if spec.zeros().nbytes <= COPIED_BYTES:
                self._copied.append((spec.name, self._request.get_input_tensor(place).data))
            else:
                self._shared.append((spec.name, place))
        places = {name: i for i, port in enumerate(compiled.outputs) for name in port.get_names()}
        self._outputs: list[tuple[str, Any]] = [
            (spec.name, self._request.get_output_tensor(places[spec.name])) for spec in outputs
        ]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        for name, buffer in self._copied:
            buffer[...] = feeds[name]
        for name, place in self._shared:
            self._request.set_input_tensor(place, self._tensor(feeds[name], shared_memory=True))
        try:
            self._request.infer()
        except RuntimeError as problem:
            raise EngineError(f"{engine_version()} failed to run: {plain(problem)}") from None
        return {name: tensor.data.copy() for name, tensor in self._outputs}

    def facts(self) -> dict[str, Json]:
        """What is executed: precision as read back, layers by kind, int8 layers, threads and streams."""
        layers: Counter[str] = Counter()
        int8_layers = 0
        for layer in self._compiled.get_runtime_model().get_ordered_ops():
            info = layer.get_rt_info()
            kind = info["layerType"].astype(str)
            if kind not in ("Input", "Output", "Const"):
                layers[kind] += 1
                int8_layers += info["runtimePrecision"].astype(str) in ("i8", "u8")
        return {
            "inference_precision": self.precision,
            "layers": dict(sorted(layers.items())),
            "int8_layers": int8_layers,
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "streams": int(self._compiled.get_property("NUM_STREAMS")),
        }

    def close(self) -> None:
        self._copied, self._shared, self._outputs = [], [], []
        del self._request, self._compiled


def openvino() -> Any:
    """The package, imported without its telemetry.

    ``import openvino`` loads ``openvino_telemetry`` for its converter, which we don't use; the package falls
    back to a stub where that is absent. So it is hidden during the import: nothing can be sent, and it takes
    212 ms, not 307. A process that had imported openvino before is left as it is.

    Raises:
        MissingDependency: openvino is not installed.
    """
    hidden = "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules
    if hidden:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        import openvino as package
    except ImportError as problem:
        if problem.name not in (None, "openvino"):
            raise
        raise MissingDependency(
            "openvino", "running an OpenVINO IR", "pip install 'edgekit-sdk[openvino]'"
        ) from None
    finally:
        if hidden:
            del sys.modules["openvino_telemetry"]
    return package


def plain(problem: Exception) -> str:
    """OpenVINO's message without the lines that say where in its source it was thrown."""
    lines = [line.strip() for line in str(problem).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Exception from ", "Check '"))]
    return " ".join(kept) or " ".join(str(problem).split())

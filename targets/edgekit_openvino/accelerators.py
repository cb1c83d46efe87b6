"""Run an OpenVINO IR on Intel's GPU or NPU. Device side. Not run on either: no such device was available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.errors import EngineError
from edgekit.system.graphics_drivers import drivers_identity
from edgekit.target.accelerators import Accelerator
from edgekit.tensor_spec import Json, TensorSpec
from edgekit_openvino.run import XML_FILE, OpenvinoRunner, compiled_model, engine_version, openvino, plain

PRECISION = {"gpu": {"INFERENCE_PRECISION_HINT": "f32"}, "npu": {}}
"""A GPU's default is f16. An NPU computes in f16 only, and is refused where a variant's limit is above that.
https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes.html"""


def find_accelerator(kind: str) -> Accelerator | None:
    """Return Intel's GPU or NPU if OpenVINO's plug-in finds one.

    Raises:
        MissingDependency: openvino is not installed.
    """
    core = openvino().Core()
    if not any(name.partition(".")[0] == kind.upper() for name in core.available_devices):
        return None
    name = str(core.get_property(kind.upper(), "FULL_DEVICE_NAME"))
    return Accelerator(kind, name, f"drivers {drivers_identity()}")


def open_on(
    kind: str,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OpenvinoRunner:
    """Load ``model.xml`` on Intel's GPU or NPU and run it once on zeros. The plug-ins run the whole graph, or
    refuse it.

    Raises:
        MissingDependency: openvino is not installed.
        EngineError: there is no such device, or it refused the model.
    """
    accelerator = find_accelerator(kind)
    if accelerator is None:
        devices = ", ".join(openvino().Core().available_devices)
        raise EngineError(f"{engine_version()} found no {kind.upper()} on this machine; it found {devices}")
    settings = {"PERFORMANCE_HINT": "LATENCY", **PRECISION[kind]}
    compiled = compiled_model(files, options, None, placement=(kind.upper(), settings))
    try:
        runner = OpenvinoRunner(compiled, inputs, outputs, bool(options.get("stored_weights")))
    except RuntimeError as problem:
        raise EngineError(f"{engine_version()} did not load {files[XML_FILE]}: {plain(problem)}") from None
    runner.device = f"{kind.upper()} ({accelerator.name})"
    runner.run({spec.name: spec.zeros() for spec in inputs})
    return runner

"""Run an OpenVINO IR on Intel's GPU or NPU. Device side. Not run on either: no such device was available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.errors import EngineError
from edgekit.system.graphics_drivers import drivers_identity
from edgekit.target.accelerators import Accelerator, Interface, absent, named
from edgekit.tensor_spec import Json, TensorSpec
from edgekit_openvino.run import XML_FILE, OpenvinoRunner, compiled_model, engine_version, openvino, plain

DOCUMENTATION = (
    "https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes.html"
)
SYSTEMS = ("linux", "win32")
INTERFACES = (
    Interface(
        "openvino-gpu",
        "gpu",
        "OpenVINO",
        SYSTEMS,
        "Intel's GPU driver",
        "float32; INFERENCE_PRECISION_HINT=f32, because the default is float16",
        DOCUMENTATION,
        options={"INFERENCE_PRECISION_HINT": "f32"},
    ),
    Interface(
        "openvino-npu",
        "npu",
        "OpenVINO",
        SYSTEMS,
        "Intel's NPU driver",
        "float16: the NPU has no float32",
        DOCUMENTATION,
    ),
)


def find_accelerator(device: str) -> Accelerator | None:
    """Return Intel's GPU or NPU if OpenVINO's plug-in finds one."""
    core = openvino().Core()
    for interface in named(INTERFACES, device):
        plugin = interface.kind.upper()
        if any(name.partition(".")[0] == plugin for name in core.available_devices):
            name = str(core.get_property(plugin, "FULL_DEVICE_NAME"))
            return Accelerator(interface.kind, name, f"drivers {drivers_identity()}")
    return None


def open_on(
    device: str,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OpenvinoRunner:
    """Load ``model.xml`` on Intel's GPU or NPU and run it once on zeros; it runs whole or is refused."""
    accelerator = find_accelerator(device)
    if accelerator is None:
        devices = ", ".join(openvino().Core().available_devices)
        raise EngineError(f"{absent(engine_version(), device)}; it found {devices}")
    (interface,) = named(INTERFACES, device)
    plugin = interface.kind.upper()
    settings = {"PERFORMANCE_HINT": "LATENCY", **interface.options}
    compiled = compiled_model(files, options, None, placement=(plugin, settings))
    try:
        runner = OpenvinoRunner(compiled, inputs, outputs)
    except RuntimeError as problem:
        raise EngineError(f"{engine_version()} did not load {files[XML_FILE]}: {plain(problem)}") from None
    runner.device = f"{plugin} ({accelerator.name})"
    runner.run({spec.name: spec.zeros() for spec in inputs})
    return runner

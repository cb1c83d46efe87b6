"""Run a model on a GPU, an NPU or by other kernels, by ONNX Runtime's execution providers. Device side.

ONNX Runtime gives a provider the nodes that it has kernels for, and silently runs the others on the CPU.
What ran where is read from the profile of the first run, which compiles the kernels anyway (placement.py).
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from edgekit.errors import EngineError, install_line
from edgekit.system.graphics_drivers import drivers_identity
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.accelerators import Accelerator, Interface, PlacedNode, absent, named
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_ort.device.placement import placed_nodes
from edgekit_ort.run import MODEL_FILE, OrtRunner, engine_version, open_session

NAMED_NODES = 8
OPENVINO = "OpenVINOExecutionProvider"
DOCUMENTATION = "https://onnxruntime.ai/docs/execution-providers/"
LINUX, WINDOWS, MAC = "linux", "win32", "darwin"
APPLE = "the macOS wheels of onnxruntime have it"


@dataclass(frozen=True)
class Provider(Interface):
    """An execution provider of ONNX Runtime.

    Attributes:
        provider: Its name in ONNX Runtime.
        plugin: Package that brings it; "": it is part of a build of onnxruntime.
        libraries: Libraries of the system that the device needs, by system.
        threads: Option that takes the number of threads of a provider that computes on the CPU.
    """

    provider: str = ""
    plugin: str = ""
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    threads: str = ""


NVIDIA = {LINUX: ("libcuda.so.1",), WINDOWS: ("nvcuda.dll",)}
"""NVIDIA's driver."""
TENSORRT = {LINUX: ("libcuda.so.1", "libnvinfer.so.10"), WINDOWS: ("nvcuda.dll", "nvinfer_10.dll")}

INTERFACES = (
    Provider(
        "cuda", "gpu", "CUDA", (LINUX, WINDOWS), "pip install onnxruntime-gpu",
        "float32; use_tf32=0, because TF32, the default, keeps 10 bits of a mantissa",
        DOCUMENTATION + "CUDA-ExecutionProvider.html",
        options={"use_tf32": "0"}, provider="CUDAExecutionProvider", libraries=NVIDIA,
    ),
    Provider(
        "tensorrt", "gpu", "TensorRT", (LINUX, WINDOWS), "pip install onnxruntime-gpu tensorrt",
        "float32; TensorRT may round to TF32, for which the provider has no option",
        DOCUMENTATION + "TensorRT-ExecutionProvider.html",
        options={"trt_fp16_enable": "0"}, provider="TensorrtExecutionProvider", libraries=TENSORRT,
    ),
    Provider(
        "directml", "gpu", "DirectML", (WINDOWS,), "pip install onnxruntime-directml",
        "float32, its default",
        DOCUMENTATION + "DirectML-ExecutionProvider.html",
        provider="DmlExecutionProvider", libraries={WINDOWS: ("d3d12.dll",)},
    ),
    Provider(
        "openvino-gpu", "gpu", "OpenVINO", (LINUX, WINDOWS), "pip install onnxruntime-openvino",
        "float32; precision=FP32, because a GPU's default is float16",
        DOCUMENTATION + "OpenVINO-ExecutionProvider.html",
        options={"device_type": "GPU", "precision": "FP32"}, provider=OPENVINO,
    ),
    Provider(
        "coreml-gpu", "gpu", "Core ML", (MAC,), APPLE,
        "chosen by Core ML",
        DOCUMENTATION + "CoreML-ExecutionProvider.html",
        options={"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"},
        provider="CoreMLExecutionProvider",
    ),
    Provider(
        "webgpu", "gpu", "WebGPU", (LINUX, WINDOWS, MAC), install_line("webgpu"),
        "float32, its default",
        "https://onnxruntime.ai/docs/execution-providers/WebGPU-ExecutionProvider.html",
        "a software GPU", provider="WebGpuExecutionProvider", plugin="onnxruntime_ep_webgpu",
    ),
    Provider(
        "coreml-npu", "npu", "Core ML", (MAC,), APPLE,
        "float16: the Neural Engine has no float32",
        DOCUMENTATION + "CoreML-ExecutionProvider.html",
        options={"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndNeuralEngine"},
        provider="CoreMLExecutionProvider",
    ),
    Provider(
        "openvino-npu", "npu", "OpenVINO", (LINUX, WINDOWS), "pip install onnxruntime-openvino",
        "float16: the NPU has no float32",
        DOCUMENTATION + "OpenVINO-ExecutionProvider.html",
        options={"device_type": "NPU"}, provider=OPENVINO,
    ),
    Provider(
        "openvino-cpu", "cpu", "OpenVINO", (LINUX, WINDOWS), "pip install onnxruntime-openvino",
        "float32; precision=FP32",
        DOCUMENTATION + "OpenVINO-ExecutionProvider.html",
        "an x86-64 processor", options={"device_type": "CPU", "precision": "FP32"}, provider=OPENVINO,
        threads="num_of_threads",
    ),
    Provider(
        "xnnpack", "cpu", "XNNPACK", (LINUX, WINDOWS, MAC),
        "a build of onnxruntime with --use_xnnpack; no wheel has it",
        "float32, its default",
        DOCUMENTATION + "Xnnpack-ExecutionProvider.html",
        provider="XnnpackExecutionProvider", threads="intra_op_num_threads",
    ),
)  # fmt: skip
"""In the order of preference within a kind. TensorRT builds an engine at each load, so CUDA is first."""


_REGISTERED: set[str] = set()
"""Plug-ins that this process has registered."""


class _AvailableDevice(NamedTuple):
    interface: Provider
    devices: Sequence[Any]
    """``OrtEpDevice`` of a plug-in; empty for a provider that is named."""
    version: str


def find_accelerator(device: str) -> Accelerator | None:
    """Return the accelerator that ONNX Runtime would use; None if no such provider or device is here.

    Raises:
        MissingDependency: onnxruntime is not installed.
    """
    available = _find(device)
    if available is None:
        return None
    software = any(one.device.type.name == "CPU" for one in available.devices)
    version = " ".join(part for part in (available.version, f"drivers {drivers_identity()}") if part)
    return Accelerator(available.interface.kind, available.interface.label, version, software)


def open_on(
    device: str,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OrtRunner:
    """Load ``model.onnx`` on an accelerator and run it once on zeros. The CPU runs nodes without a kernel.

    Raises:
        MissingDependency: onnxruntime is not installed.
        EngineError: the accelerator is missing, refused the model, or runs no node.
    """
    available = _require_device(device)
    label, provider = available.interface.label, available.interface.provider
    with TemporaryDirectory(prefix="edgekit-ort-") as folder:
        session = _session(available, files[MODEL_FILE], options, threads, Path(folder, "profile"))
        runner = AcceleratedRunner(session, [spec.name for spec in outputs], options.get("precision", "fp32"))
        try:
            runner.run({spec.name: spec.zeros() for spec in inputs})
        except EngineError as problem:
            raise EngineError(f"{label}: {problem}") from None
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        runner.placement, runner.copies = placed_nodes(events, session, provider, label)
    total, on_cpu = len(runner.placement), len(runner.on_cpu)
    if on_cpu == total:
        error = EngineError(f"{label} runs none of the {total} nodes")
        error.blame = "bundle"  # this version will again
        raise error
    split = f", {on_cpu} of {total} nodes on the CPU" if on_cpu else ""
    runner.device = f"{available.interface.kind.upper()} ({label}{split})"
    return runner


def run_on(
    device: str, model: bytes, options: Mapping[str, Json], feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """Run a serialized model once on an accelerator; return all of its outputs.

    Raises:
        MissingDependency: onnxruntime is not installed.
        EngineError: the accelerator is missing, or refused the model.
    """
    available = _require_device(device)
    session = _session(available, model, options, None)
    names = [output.name for output in session.get_outputs()]
    return OrtRunner(session, names, "fp32").run(feeds)


class AcceleratedRunner(OrtRunner):
    """A loaded ``model.onnx`` on an accelerator.

    Attributes:
        placement: The nodes of a run, with the provider that ran each.
        copies: Number of copies between the processors in a run.
    """

    def __init__(self, session: Any, outputs: Sequence[str], precision: str) -> None:
        super().__init__(session, outputs, precision)
        self.placement: list[PlacedNode] = []
        self.copies = 0

    @property
    def on_cpu(self) -> list[PlacedNode]:
        """Return the nodes that the accelerator did not run."""
        return [node for node in self.placement if node.reason]

    def facts(self) -> dict[str, Json]:
        return {
            **super().facts(),
            "nodes_by_provider": dict(sorted(Counter(node.provider for node in self.placement).items())),
            "nodes_on_cpu": [f"{node.node} ({node.op})" for node in self.on_cpu[:NAMED_NODES]],
            "copies_between_processors": self.copies,
        }


def _session(
    available: _AvailableDevice,
    model: Path | bytes,
    options: Mapping[str, Json],
    threads: int | None,
    profile_into: Path | None = None,
) -> Any:
    interface = available.interface
    chosen = dict(interface.options)
    if interface.threads and threads is not None:
        chosen[interface.threads] = str(threads)
    try:
        session = open_session(
            model,
            1 if interface.threads else threads,  # it has threads of its own, which would wait for the others
            keep_float_regions=bool(options.get("float_islands")),
            widened_weights=bool(options.get("widened_weights")),
            profile_into=profile_into,
            accelerator=(interface.provider, chosen, available.devices),
        )
    except EngineError as problem:
        raise EngineError(f"{interface.label}: {_plain(problem)}") from None
    if interface.provider not in session.get_providers():
        raise EngineError(
            f"ONNX Runtime could not create its provider {interface.label}; its log has the reason"
        )
    return session


def _plain(problem: EngineError) -> str:
    """Return the last line of an error: those before it are where a provider's C++ raised it."""
    return [line for line in str(problem).splitlines() if line.strip()][-1].strip()


def _require_device(device: str) -> _AvailableDevice:
    available = _find(device)
    if available is None:
        raise EngineError(absent(engine_version(), device))
    return available


def _find(device: str) -> _AvailableDevice | None:
    ort = onnxruntime("running an ONNX model", "ort")
    for interface in named(INTERFACES, device):
        if not interface.plugin:
            if interface.provider in ort.get_available_providers() and _has_device(ort, interface):
                return _AvailableDevice(interface, (), "")
            continue
        try:
            plugin = import_module(interface.plugin)
        except ModuleNotFoundError as problem:
            if problem.name != interface.plugin:
                raise
            continue
        if interface.plugin not in _REGISTERED and not _devices(ort, interface):
            ort.register_execution_provider_library(interface.plugin, plugin.get_library_path())
            _REGISTERED.add(interface.plugin)  # a second time it is an error, also without a device
        if devices := _devices(ort, interface):
            return _AvailableDevice(interface, devices[:1], str(devices[0].ep_metadata.get("version", "")))
    return None


def _devices(ort: Any, interface: Provider) -> list[Any]:
    return [device for device in ort.get_ep_devices() if device.ep_name == interface.provider]


def _has_device(ort: Any, interface: Provider) -> bool:
    """Return whether a provider that is part of onnxruntime would reach a device. ONNX Runtime lists it even
    without one, and then runs everything on the CPU."""
    if interface.provider == OPENVINO:
        devices = ort.capi._pybind_state.get_available_openvino_device_ids()
        return any(str(name).partition(".")[0] == interface.kind.upper() for name in devices)
    return all(_loads(library) for library in interface.libraries.get(sys.platform, ()))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True

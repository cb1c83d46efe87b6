"""Run a model on a GPU or an NPU by ONNX Runtime's execution providers. Device side.

ONNX Runtime gives a provider the nodes that it has kernels for, and silently runs the others on the CPU.
What ran where is read from the profile of the first run, which compiles the kernels anyway.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

from edgekit.errors import EngineError
from edgekit.system.graphics_drivers import drivers_identity
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.accelerators import Accelerator
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_ort.run import MODEL_FILE, OrtRunner, engine_version, open_session

KERNEL = "_kernel_time"
"""End of the profiler's name of a node's own event."""
NAMED_NODES = 8


class Provider(NamedTuple):
    """An execution provider of ONNX Runtime.

    Attributes:
        name: Its name in ONNX Runtime.
        kind: ``gpu`` or ``npu``.
        label: Its name for users.
        options: Options with which it computes what the bundle was verified for.
        plugin: Package that brings it; "": it is part of a build of onnxruntime.
    """

    name: str
    kind: str
    label: str
    options: Mapping[str, str] = MappingProxyType({})
    plugin: str = ""


# https://onnxruntime.ai/docs/execution-providers, in the order in which they are preferred.
PROVIDERS = (
    # TF32 keeps 10 bits of a mantissa; it is CUDA's default.
    Provider("CUDAExecutionProvider", "gpu", "CUDA", {"use_tf32": "0"}),
    Provider("DmlExecutionProvider", "gpu", "DirectML"),
    Provider("OpenVINOExecutionProvider", "gpu", "OpenVINO", {"device_type": "GPU", "precision": "FP32"}),
    Provider("CoreMLExecutionProvider", "gpu", "Core ML",
             {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"}),
    Provider("WebGpuExecutionProvider", "gpu", "WebGPU", plugin="onnxruntime_ep_webgpu"),
    Provider("CoreMLExecutionProvider", "npu", "Core ML",
             {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndNeuralEngine"}),
    Provider("OpenVINOExecutionProvider", "npu", "OpenVINO", {"device_type": "NPU"}),
)  # fmt: skip


class _AvailableDevice(NamedTuple):
    provider: Provider
    devices: Sequence[Any]
    """``OrtEpDevice`` of a plug-in; empty for a provider that is named."""
    version: str


def find_accelerator(kind: str) -> Accelerator | None:
    """Return the accelerator that ONNX Runtime would use; None if no provider of the kind is installed.

    Raises:
        MissingDependency: onnxruntime is not installed.
    """
    available = _find(kind)
    if available is None:
        return None
    software = any(device.device.type.name == "CPU" for device in available.devices)
    version = " ".join(part for part in (available.version, f"drivers {drivers_identity()}") if part)
    return Accelerator(kind, available.provider.label, version, software)


def open_on(
    kind: str,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OrtRunner:
    """Load ``model.onnx`` on an accelerator and run it once on zeros. The CPU runs nodes without a kernel.

    Raises:
        MissingDependency: onnxruntime is not installed.
        EngineError: there is no such accelerator, it refused the model, or it runs no node.
    """
    available = _require_device(kind)
    with TemporaryDirectory(prefix="edgekit-ort-") as folder:
        session = _session(available, files[MODEL_FILE], options, threads, Path(folder, "profile"))
        runner = AcceleratedRunner(session, [spec.name for spec in outputs], options.get("precision", "fp32"))
        try:
            runner.run({spec.name: spec.zeros() for spec in inputs})
        except EngineError as problem:
            raise EngineError(f"{available.provider.label}: {problem}") from None
        runner.nodes, runner.on_cpu = _placement(Path(session.end_profiling()), available.provider.name)
    on_it, total = runner.nodes[available.provider.name], sum(runner.nodes.values())
    if not on_it:
        error = EngineError(f"{available.provider.label} runs none of the {total} nodes")
        error.blame = "bundle"  # this version will again
        raise error
    split = "" if on_it == total else f", {total - on_it} of {total} nodes on the CPU"
    runner.device = f"{kind.upper()} ({available.provider.label}{split})"
    return runner


def run_on(
    kind: str, model: bytes, options: Mapping[str, Json], feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """Run a serialized model once on an accelerator; return all of its outputs.

    Raises:
        MissingDependency: onnxruntime is not installed.
        EngineError: there is no such accelerator, or it refused the model.
    """
    available = _require_device(kind)
    session = _session(available, model, options, None)
    names = [output.name for output in session.get_outputs()]
    return OrtRunner(session, names, "fp32").run(feeds)


class AcceleratedRunner(OrtRunner):
    """A loaded ``model.onnx`` on an accelerator.

    Attributes:
        nodes: Number of nodes that each provider ran.
        on_cpu: Nodes that the accelerator did not run: ``name (operator)``, at most NAMED_NODES.
    """

    def __init__(self, session: Any, outputs: Sequence[str], precision: str) -> None:
        super().__init__(session, outputs, precision)
        self.nodes: Counter[str] = Counter()
        self.on_cpu: list[str] = []

    def facts(self) -> dict[str, Json]:
        nodes = dict(sorted(self.nodes.items()))
        return {**super().facts(), "nodes_by_provider": nodes, "nodes_on_cpu": list(self.on_cpu)}


def _session(
    device: _AvailableDevice,
    model: Path | bytes,
    options: Mapping[str, Json],
    threads: int | None,
    profile_into: Path | None = None,
) -> Any:
    try:
        return open_session(
            model,
            threads,
            keep_float_regions=bool(options.get("float_islands")),
            widened_weights=bool(options.get("widened_weights")),
            profile_into=profile_into,
            accelerator=(device.provider.name, dict(device.provider.options), device.devices),
        )
    except EngineError as problem:
        raise EngineError(f"{device.provider.label}: {problem}") from None


def _require_device(kind: str) -> _AvailableDevice:
    available = _find(kind)
    if available is None:
        raise EngineError(f"{engine_version()} found no {kind.upper()} on this machine")
    return available


def _find(kind: str) -> _AvailableDevice | None:
    ort = onnxruntime("running an ONNX model", "ort")
    available = ort.get_available_providers()
    for provider in PROVIDERS:
        if provider.kind != kind:
            continue
        if not provider.plugin:
            if provider.name in available:
                return _AvailableDevice(provider, (), "")
            continue
        try:
            plugin = import_module(provider.plugin)
        except ModuleNotFoundError as problem:
            if problem.name != provider.plugin:
                raise
            continue
        devices = _devices(ort, provider)
        if not devices:
            ort.register_execution_provider_library(provider.plugin, plugin.get_library_path())
            devices = _devices(ort, provider)
        if devices:
            return _AvailableDevice(provider, devices[:1], str(devices[0].ep_metadata.get("version", "")))
    return None


def _devices(ort: Any, provider: Provider) -> list[Any]:
    return [device for device in ort.get_ep_devices() if device.ep_name == provider.name]


def _placement(profile: Path, provider: str) -> tuple[Counter[str], list[str]]:
    """Return the number of nodes by provider, and names of those that another provider ran."""
    events = json.loads(profile.read_text("utf-8"))
    kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith(KERNEL)]
    nodes = Counter(str(event["args"].get("provider", "")) for event in kernels)
    others = [e for e in kernels if e["args"].get("provider") != provider]
    named = [f"{e['name'].removesuffix(KERNEL)} ({e['args'].get('op_name', '')})" for e in others]
    return nodes, named[:NAMED_NODES]

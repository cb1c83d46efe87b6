"""Run a model on a GPU, an NPU or by other kernels, by ONNX Runtime's execution providers. Device side.

ONNX Runtime gives a provider the nodes that it has kernels for, and silently runs the others on the CPU.
What ran where is read from the profile of the first run, which compiles the kernels anyway (placement.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from edgekit.errors import EngineError
from edgekit.system.graphics_drivers import drivers_identity
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.accelerators import Accelerator, PlacedNode, absent, named
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_ort.device import providers
from edgekit_ort.device.placement import placed_nodes
from edgekit_ort.device.providers import OPENVINO, Provider, Recording
from edgekit_ort.device.recorded_run import UNRECORDED, RecordedRun
from edgekit_ort.run import MODEL_FILE, OrtRunner, engine_version, open_session

INTERFACES = providers.INTERFACES
NAMED_NODES = 8
STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
"""Precedes each message of ONNX Runtime; one that a kernel raised is inside another."""
_REGISTERED: set[str] = set()
"""Plug-ins that this process has registered."""


class _AvailableDevice(NamedTuple):
    interface: Provider
    devices: Sequence[Any]
    """``OrtEpDevice`` of a plug-in; empty for a provider that is named."""
    version: str


def find_accelerator(device: str) -> Accelerator | None:
    """Return the accelerator that ONNX Runtime would use; None if no such provider or device is here."""
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
    """Load ``model.onnx`` on an accelerator and run it once on zeros. The CPU runs nodes without a kernel."""
    available = _require_device(device)
    recording = available.interface.recording
    if recording is not None:
        with contextlib.suppress(EngineError):  # the CPU takes part, or a kernel can't be recorded
            return _open(available, files[MODEL_FILE], inputs, outputs, options, threads, recording)
    return _open(available, files[MODEL_FILE], inputs, outputs, options, threads)


def _open(
    available: _AvailableDevice,
    model: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
    recording: Recording | None = None,
) -> AcceleratedRunner:
    label, provider = available.interface.label, available.interface.provider
    with TemporaryDirectory(prefix="edgekit-ort-") as folder:
        session = _session(available, model, options, threads, Path(folder, "profile"), recording)
        runner = AcceleratedRunner(session, [spec.name for spec in outputs], options.get("precision", "fp32"))
        try:
            runner.warm_up(inputs)
        except EngineError as problem:
            raise EngineError(f"{label}: {_plain(problem)}") from None
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        runner.placement, runner.copies = placed_nodes(events, session, provider, label)
    total, on_cpu = len(runner.placement), len(runner.on_cpu)
    if on_cpu == total:
        error = EngineError(f"{label} runs none of the {total} nodes")
        error.blame = "bundle"  # this version will again
        raise error
    if recording is not None:
        if on_cpu or runner.copies:
            raise EngineError(f"{label} can't record a run in which the CPU takes part")
        runner.record(inputs, outputs, recording.memory)
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


@contextlib.contextmanager
def _failures_of_a_run() -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # onnxruntime raises a dozen classes that share no root but this one
        raise EngineError(f"{engine_version()} failed to run: {problem}") from None


class AcceleratedRunner(OrtRunner):
    """A loaded ``model.onnx`` on an accelerator."""

    def __init__(self, session: Any, outputs: Sequence[str], precision: str) -> None:
        super().__init__(session, outputs, precision)
        self.placement: list[PlacedNode] = []
        self.copies = 0
        self._recorded: RecordedRun | None = None

    @property
    def on_cpu(self) -> list[PlacedNode]:
        """Return the nodes that the accelerator did not run."""
        return [node for node in self.placement if node.reason]

    def warm_up(self, inputs: Sequence[TensorSpec]) -> None:
        """Run once on zeros, without recording.

        Raises:
            EngineError: ONNX Runtime failed.
        """
        ort = onnxruntime("running an ONNX model", "ort")
        settings = ort.RunOptions()
        settings.add_run_config_entry(*UNRECORDED)
        with _failures_of_a_run():
            self._session.run(self._outputs, {spec.name: spec.zeros() for spec in inputs}, settings)

    def record(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], memory: str) -> None:
        """Record a run in memory of the GPU, ``cuda`` or ``webgpu``; from now on it is replayed.

        Raises:
            EngineError: ONNX Runtime failed.
        """
        with _failures_of_a_run():
            self._recorded = RecordedRun(self._session, inputs, outputs, memory)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if self._recorded is None:
            return super().run(feeds)
        with _failures_of_a_run():
            return self._recorded.run(feeds)

    def close(self) -> None:
        self._recorded = None
        super().close()

    def facts(self) -> dict[str, Json]:
        return {
            **super().facts(),
            "recorded": self._recorded is not None,
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
    recording: Recording | None = None,
) -> Any:
    interface = available.interface
    chosen = {**interface.options, **({recording.option: "1"} if recording is not None else {})}
    if interface.cuda:
        # Those that pip installed are on no search path.
        onnxruntime("running an ONNX model", "ort").preload_dlls(directory="")
    if interface.threads and threads is not None:
        chosen[interface.threads] = str(threads)
    try:
        session = open_session(
            model,
            1 if interface.threads else threads,  # it has threads of its own, which would wait for the others
            keep_float_regions=bool(options.get("float_islands")),
            widened_weights=bool(options.get("widened_weights")),
            profile_into=profile_into,
            fixed_memory=recording is not None,
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
    """Return the reason of an error: what is before it is where a provider's C++ raised it.

    >>> _plain(EngineError("/src/conv.cc:296 f() [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : cuDNN is absent"))
    'cuDNN is absent'
    """
    last = [line for line in str(problem).splitlines() if line.strip()][-1]
    return STATUS.split(last)[-1].strip()


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
    """Return whether the provider reaches a device: without one, ONNX Runtime lists it and uses the CPU."""
    if interface.provider == OPENVINO:
        devices = ort.capi._pybind_state.get_available_openvino_device_ids()
        return any(str(name).partition(".")[0] == interface.kind.upper() for name in devices)
    if interface.libraries_package:
        with contextlib.suppress(ImportError):
            import_module(interface.libraries_package)
    return all(_loads(library) for library in interface.libraries.get(sys.platform, ()))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True

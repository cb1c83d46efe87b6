"""Run a .tflite file on a GPU by LiteRT's CompiledModel, or on an external delegate. Device side.

External delegates are in device/delegates.py. On the GPU the whole graph runs, or the file is refused. With
the CPU as well LiteRT silently splits the graph, and its ``is_fully_accelerated()`` is true for a split one
(seen on 2.3.0). The GPU computes in float32. LiteRT's own default is float16 if the GPU has it
(EfficientNet-Lite0: 38.7 dB instead of 116.4).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError, install_line
from edgekit.system.graphics_drivers import drivers_identity, vulkan_drivers
from edgekit.system.redirection import without_lines
from edgekit.target.accelerators import Accelerator, Interface, absent, named
from edgekit.target.contract import Runner
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_tflite.device import delegates
from edgekit_tflite.device.families import FAMILIES, IN_PROCESS
from edgekit_tflite.run import FILE, bindings, converted, engine_version

LABEL = "LiteRT"
GPU = Interface(
    "litert-gpu",
    "gpu",
    LABEL,
    ("linux", "win32", "darwin"),
    install_line("tflite"),
    "float32; enforce_f32, because the default is float16 where the GPU has it",
    "https://ai.google.dev/edge/litert/next/gpu",
    "an NVIDIA H200, a software GPU",
)
INTERFACES = (GPU, *FAMILIES)
SPLIT = "Some ops are not accelerated"
"""Part of LiteRT's error for a graph that it would have to split."""
LOGGED = b"INFO: "
"""LiteRT logs to stderr and stdout, and has no switch for it."""


def find_accelerator(device: str) -> Accelerator | None:
    """Return the GPU as LiteRT reaches it: on Linux by Vulkan, elsewhere by the system's own interface.
    tflite-runtime has none. Else return an external delegate.
    """
    reached = engine_version().startswith(LABEL) and (sys.platform != "linux" or vulkan_drivers())
    if reached and named((GPU,), device):
        return Accelerator(GPU.kind, LABEL, f"drivers {drivers_identity()}")
    delegate = delegates.find(device)
    if delegate is None:
        return None
    return Accelerator(delegate.family.kind, delegate.path.name, delegate.identity)


def isolation(device: str) -> str:
    """Return how a device must be used, as ``Accelerators.isolation`` says."""
    found = find_accelerator(device)
    if found is None or found.name == LABEL:
        return ""
    return "checked" if device.partition(":")[0] == IN_PROCESS else "worker"


def why_absent(device: str) -> str:
    """Return why the engine reaches no such accelerator here, and what to do."""
    families = [family for family in FAMILIES if family.name == device]
    if families:
        return families[0].install
    if not engine_version().startswith(LABEL):
        return f"{engine_version()} has no GPU kernels, LiteRT has: {install_line('tflite')}"
    return "no Vulkan driver: install that of the GPU's vendor, or mesa-vulkan-drivers for Intel and AMD"


def open_on(
    device: str,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> Runner:
    """Load ``model.tflite`` on a GPU and run it once on zeros, or on an external delegate."""
    version, path = engine_version(), files[FILE]
    accelerator = find_accelerator(device)
    if accelerator is None:
        raise EngineError(absent(version, device))
    if accelerator.name != LABEL and (delegate := delegates.find(device)) is not None:
        return delegates.open_on(delegate, files, inputs, outputs, options, threads)
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import GpuOptions, Options

    chosen = Options(
        hardware_accelerators=HardwareAccelerator.GPU,
        gpu_options=GpuOptions(enforce_f32=options.get("arithmetic") != "fp16"),
    )
    try:
        with without_lines(LOGGED), without_lines(LOGGED, 1):
            model = CompiledModel.from_file(str(path), options=chosen)
            runner = GpuRunner(model, version, inputs, outputs, options, path)
            runner.run({spec.name: spec.zeros() for spec in inputs})
    except (RuntimeError, ValueError) as problem:
        reason = " ".join(str(problem).split())
        split = SPLIT in reason
        reason = "the GPU can't run every operator of it" if split else reason
        error = EngineError(f"{version} did not load {path.name} on a GPU: {reason}")
        error.blame = "bundle" if split else ""  # only a split is refused again by this version
        raise error from None
    return runner


class GpuRunner:
    """A ``model.tflite`` whose nodes all run on the GPU."""

    device = f"GPU ({LABEL})"

    def __init__(
        self,
        model: Any,
        version: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        path: Path,
    ) -> None:
        self.precision: str = options["precision"]
        self._model, self._version = model, version
        name = options["signature"]
        self._signature = model.get_signature_index(name)
        if self._signature < 0:
            raise EngineError(f"{path} has no signature {name!r}")
        self._buffers = (
            model.create_input_buffers(self._signature),
            model.create_output_buffers(self._signature),
        )
        ends = model.get_signature_by_index(self._signature)
        details = (model.get_input_tensor_details(name), model.get_output_tensor_details(name))
        self._input_entries, self._out_of = (
            bindings(
                specs,
                options[side],
                {end: index for index, end in enumerate(ends[side])},
                {index: detail[end] for index, end in enumerate(ends[side])},
                path,
                is_input=side == "inputs",
            )
            for side, specs, detail in zip(("inputs", "outputs"), (inputs, outputs), details, strict=True)
        )
        self._types = [
            (
                int(np.prod(details[1][end]["shape"])),
                np.dtype(details[1][end]["dtype"]),
                details[1][end]["shape"],
            )
            for end in ends["outputs"]
        ]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        input_buffers, out_of = self._buffers
        try:
            for name, index, dtype, _, order in self._input_entries:
                array = feeds[name] if dtype is None else converted(feeds[name], dtype, name)
                array = array if order is None else array.transpose(order)
                input_buffers[index].write(np.ascontiguousarray(array))
            self._model.run_by_index(self._signature, input_buffers, out_of)
            outputs = {}
            for name, index, dtype, shape, order in self._out_of:
                count, stored, stored_shape = self._types[index]
                array = out_of[index].read(count, stored.type).reshape(stored_shape)
                array = array if order is None else np.ascontiguousarray(array.transpose(order))
                array = array if dtype is None else converted(array, dtype, name)
                outputs[name] = array if shape is None else array.reshape(shape)
        except (RuntimeError, ValueError) as problem:
            raise EngineError(
                f"{self._version} failed on the GPU: {' '.join(str(problem).split())}"
            ) from None
        return outputs

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        with without_lines(LOGGED), without_lines(LOGGED, 1):
            self._buffers = ((), ())
            self._model.close()
            del self._model

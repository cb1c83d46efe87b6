"""Run an OpenVINO IR on the CPU plugin. Device side: numpy and openvino."""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgekit.errors import EngineError, need_package
from edgekit.system import cpu
from edgekit.system.interrupts import kept_signal_stack
from edgekit.system.shared_libraries import check_libraries
from edgekit.target.contract import KEPT_IN, EngineInfo, TritonForm
from edgekit.target.kept_arrays import kept_array
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_openvino.kept_blob import blob_path, keep_blob, read_blob

ENGINE = EngineInfo(
    packages=("openvino",),
    node_reports="edgekit_openvino.node_reports",
    plain_use="edgekit_openvino.plain_use",
    exported={".xml": "edgekit_openvino.exported"},
    decoder="edgekit_openvino.decoder",
    accelerators="edgekit_openvino.accelerators",
    keeps_compiled=True,
    triton=TritonForm(
        "openvino",
        {"model.xml": "model.xml", "model.bin": "model.bin"},
        threads="INFERENCE_NUM_THREADS",
        # A batch of a fixed size is filled up (https://github.com/triton-inference-server/openvino_backend).
        pads={"ENABLE_BATCH_PADDING": "YES", "SKIP_OV_DYNAMIC_BATCHSIZE": "YES"},
    ),
)
XML_FILE, BIN_FILE, PACKED_FILE = "model.xml", "model.bin", "model.xml.z"
"""``model.xml.z`` is ``model.xml`` of a further shape, compressed by zlib (compile.py)."""
RANGE_FILE = "range.xml.z"
"""The same for all sizes of a range."""
XML_LIMIT_BYTES = 256 << 20
"""Maximum size of an unpacked ``model.xml``."""

ROUNDED_INPUTS = "rounded_inputs"
VNNI = ("avx512_vnni", "avx_vnni")
BF16 = ("avx512_bf16", "amx_bf16")
"""Instruction sets of which one computes in bf16."""

PRECISION_NAMES = {"f32": "fp32", "f16": "fp16"}
"""OpenVINO's name of an element type -> ours, if it is another."""

NARROWED = {"int64": "int32", "uint64": "int32", "uint32": "int32", "float64": "float32"}
"""Element types that the CPU plugin computes in others. It wraps what is beyond int32, and clamps what is
beyond float32, infinities too, without a word."""

CONVERTER = "openvino.tools.ovc"

COPIED_BYTES = 1 << 17
"""Arrays up to this size are copied into and out of the request's own tensors; larger ones are handed over.

A handed-over array costs 4 us, copies cost more from about 128 KB on. Relu(x + x) on one thread, us a call:

    size of x and y       64 B   64 KB  256 KB   2 MB
    copied               11.8    20.7    47.6    304
    handed over          19.8    26.4    44.9    181
    compiled_model(x)    19.5    26.8    43.0    201
    infer() alone        10.0    14.5    31.0    156
"""


def engine_version() -> str:
    """Return name and version of the installed engine, e.g. ``OpenVINO 2026.4.1``."""
    return f"OpenVINO {openvino().__version__.partition('-')[0]}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> OpenvinoRunner:
    """Load ``model.xml`` with ``model.bin``, which is mapped, not read.

    ``threads=None`` takes OpenVINO's default, one per physical core. Inputs with an open dimension: loads
    ``range.xml.z``. ``options["rounded_inputs"]``: with VNNI, so many inputs of a layer
    whose weights are stored as integers are rounded to int8 by one scale; without it, none is.
    ``options["arithmetic"]``: ``bf16``: floats are computed in bf16. On AVX-512 without bf16, OpenVINO
    emulates it: numbers are right, times are not those of a processor that has it. Any other processor
    computes in fp32.
    """
    if any(spec.is_open for spec in inputs) and RANGE_FILE in files:
        files = {PACKED_FILE: files[RANGE_FILE], BIN_FILE: files[BIN_FILE]}
    compiled = compiled_model(files, options, threads)
    try:
        runner = OpenvinoRunner(compiled, inputs, outputs)
        if ROUNDED_INPUTS in options and not cpu.lacking({"needs_isa": list(VNNI)}):
            runner.precision = "int8"
        if runner.precision == "bf16" and cpu.lacking(options):
            runner.stands_in_for = "a processor with bf16"
        return runner
    except RuntimeError as problem:
        path = files.get(XML_FILE) or files[PACKED_FILE]
        raise EngineError(f"{engine_version()} did not load {path}: {plain(problem)}") from None


def compiled_model(
    files: Mapping[str, Path],
    options: Mapping[str, Json],
    threads: int | None,
    counted: bool = False,
    placement: tuple[str, dict[str, str]] | None = None,
) -> Any:
    """Return an ``openvino.CompiledModel`` with EdgeKit's settings.

    Args:
        counted: Measure every layer's time, for ``OpenvinoRunner.counters``.
        placement: Another device than the CPU, and its settings.

    Raises:
        MissingDependency: openvino is not installed.
        EngineError: OpenVINO refused the model.
    """
    core = openvino().Core()
    settings = {
        **arithmetic(options),
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        # Pinned, two sessions of one thread sit on the same core and share it: 37 images a second together,
        # 50 unpinned (YOLOX-nano, two cores). One session alone is as fast either way.
        "ENABLE_CPU_PINNING": "NO",
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = str(threads)
    if counted:
        settings["PERF_COUNT"] = "YES"
    device, settings = placement or ("CPU", settings)
    blob = None
    if KEPT_IN in options and placement is None and not counted:
        blob = blob_path(Path(str(options[KEPT_IN])), engine_version(), settings)
        if (kept := read_blob(core, blob, device, settings)) is not None:
            return kept
    try:
        with _unpacked(files) as path:
            read = core.read_model(str(path), str(files[BIN_FILE]))
        with kept_signal_stack():
            compiled = core.compile_model(read, device, settings)
    except (RuntimeError, zlib.error) as problem:
        path = files.get(XML_FILE) or files[PACKED_FILE]
        raise EngineError(f"{engine_version()} did not load {path}: {plain(problem)}") from None
    if blob is not None:
        keep_blob(compiled, blob)
    return compiled


@contextmanager
def _unpacked(files: Mapping[str, Path]) -> Iterator[Path]:
    """Yield the path of ``model.xml``, unpacked for as long as it is read.

    Raises:
        EngineError: it is larger than XML_LIMIT_BYTES.
    """
    if XML_FILE in files:
        yield files[XML_FILE]
        return
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(files[PACKED_FILE].read_bytes(), XML_LIMIT_BYTES)
    if not unpacking.eof:
        raise EngineError(
            f"{files[PACKED_FILE]} is damaged, or larger than {XML_LIMIT_BYTES >> 20} MiB unpacked"
        )
    with TemporaryDirectory(prefix="edgekit-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / XML_FILE
        path.write_bytes(content)
        yield path


def arithmetic(options: Mapping[str, Json]) -> dict[str, str]:
    """Return the settings that affect the outputs. OpenVINO's defaults follow the chip: bf16 or fp16 if it
    has them, 29 dB from fp32's outputs; inputs of layers whose weights are stored as integers rounded to
    int8, 48 dB from them, whether a build or the model's author stored them so."""
    return {
        "INFERENCE_PRECISION_HINT": "bf16" if options.get("arithmetic") == "bf16" else "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(options.get(ROUNDED_INPUTS, 0)),
    }


MULTIPLYING = ("Convolution", "Deconvolution", "FullyConnected", "MatMul")
"""Kinds of layers whose integers are those of quantization. In others ``u8`` may be booleans, or the bytes of
an image before they become floats."""


class OpenvinoRunner:
    """A compiled IR.

    ``infer()`` on tensors set beforehand is the cheapest call of the API (see ``COPIED_BYTES``).
    """

    device = "CPU"
    stands_in_for = ""

    def __init__(
        self,
        compiled: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        hint = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        self.precision = PRECISION_NAMES.get(hint, hint)
        if self._int8_layers():
            self.precision = "int8"
        self._tensor = openvino().Tensor
        self._input_buffers: list[tuple[str, Array]] = []
        self._hand_in: list[tuple[str, int]] = []
        self._narrowed = [spec.name for spec in inputs if spec.dtype in NARROWED]
        indices = {name: i for i, port in enumerate(compiled.inputs) for name in port.get_names()}
        for spec in inputs:
            if spec.name not in indices:
                continue  # the ONNX reader drops inputs that nothing reads
            if not spec.is_open and spec.zeros().nbytes <= COPIED_BYTES:
                tensor = self._request.get_input_tensor(indices[spec.name])
                self._input_buffers.append((spec.name, tensor.data))
            else:
                self._hand_in.append((spec.name, indices[spec.name]))
        self._out_of: list[tuple[str, Array]] = []
        self._hand_out: list[tuple[TensorSpec, int]] = []
        self._open: list[tuple[str, int]] = []
        indices = {name: i for i, port in enumerate(compiled.outputs) for name in port.get_names()}
        absent = [spec.name for spec in outputs if spec.name not in indices]
        if absent:
            raise EngineError(f"{XML_FILE} has no output {', '.join(absent)}; it has {', '.join(indices)}")
        _refuse_unfed(compiled, inputs)
        # OpenVINO gives a constant without elements without its shape, and there is nothing in it to compute.
        self._empty = [spec for spec in outputs if 0 in spec.shape]
        for spec in outputs:
            if 0 in spec.shape:
                continue
            if spec.is_open:
                self._open.append((spec.name, indices[spec.name]))
                continue
            if spec.zeros().nbytes <= COPIED_BYTES:
                tensor = self._request.get_output_tensor(indices[spec.name])
                self._out_of.append((spec.name, tensor.data))
            else:
                self._hand_out.append((spec, indices[spec.name]))
        self._names = [spec.name for spec in outputs]
        self._in_order = not self._hand_out and not self._empty and not self._open

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        request = self._request
        for name in self._narrowed:
            _check_range(name, feeds[name])
        for name, buffer in self._input_buffers:
            buffer[...] = feeds[name]
        # A handed-over array is not kept alive by OpenVINO: it must live until infer() has returned.
        alive: list[Array] = []
        outputs: dict[str, Array] = {}
        try:
            for name, index in self._hand_in:
                array = feeds[name]
                if not array.flags.writeable:  # OpenVINO wraps no read-only array, though it only reads
                    array = array.copy()
                    alive.append(array)
                request.set_input_tensor(index, self._tensor(array, shared_memory=True))
            for spec, index in self._hand_out:
                outputs[spec.name] = array = kept_array(spec.shape, spec.dtype)
                request.set_output_tensor(index, self._tensor(array, shared_memory=True))
            request.infer()
        except RuntimeError as problem:
            raise EngineError(f"{engine_version()} failed to run: {plain(problem)}") from None
        for name, buffer in self._out_of:
            outputs[name] = buffer.copy()
        if self._in_order:
            return outputs
        outputs.update({spec.name: spec.zeros() for spec in self._empty})
        for name, index in self._open:  # another size each time, so there is no buffer to hand over
            outputs[name] = request.get_output_tensor(index).data.copy()
        return {name: outputs[name] for name in self._names}

    def facts(self) -> dict[str, Json]:
        """Return the precision as read back, layers by kind, number of int8 layers, threads and streams."""
        layers = Counter(map(_kind, executed_layers(self._compiled)))
        return {
            "inference_precision": self.precision,
            "layers": dict(sorted(layers.items())),
            "int8_layers": self._int8_layers(),
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "streams": int(self._compiled.get_property("NUM_STREAMS")),
        }

    def counters(self) -> list[Any]:
        """Return OpenVINO's ``ProfilingInfo`` of each layer in the last run; needs ``counted``."""
        return list(self._request.profiling_info)

    def _int8_layers(self) -> int:
        """Count layers that multiply integers. Its precision does not tell: OpenVINO also reports int8 for
        layers that read floats and only have integer weights."""
        layers = [layer for layer in executed_layers(self._compiled) if _kind(layer) in MULTIPLYING]
        return sum(layer.get_input_element_type(0).get_type_name() in ("i8", "u8") for layer in layers)

    def close(self) -> None:
        self._input_buffers, self._out_of = [], []
        del self._request, self._compiled


def _refuse_unfed(compiled: Any, inputs: Sequence[TensorSpec]) -> None:
    """Reject unknown inputs: OpenVINO would compute an input that is not set from stale memory."""
    fed = {spec.name for spec in inputs}
    for port in compiled.inputs:
        names = port.get_names()
        if fed.isdisjoint(names):
            named = ", ".join(sorted(names)) or "an input without a name"
            input_names = ", ".join(fed) or "none"
            raise EngineError(
                f"{XML_FILE} reads {named}, which is not an input of the model; its inputs are {input_names}"
            )


def _check_range(name: str, array: Array) -> None:
    """Reject numbers that the CPU plugin cannot represent.

    Raises:
        EngineError: a value is beyond int32, or beyond float32 or infinite.
    """
    narrow = NARROWED[array.dtype.name]
    limits = np.finfo(narrow) if narrow == "float32" else np.iinfo(narrow)
    if not array.size:
        return
    low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)  # NaN is left out
    if low < limits.min or high > limits.max:
        raise EngineError(f"{name} contains {low} to {high}, but OpenVINO computes {array.dtype} in {narrow}")


def executed_layers(compiled: Any) -> list[Any]:
    """Return the nodes of the plugin's own graph that compute something."""
    layers = compiled.get_runtime_model().get_ordered_ops()
    return [layer for layer in layers if _kind(layer) not in ("Input", "Output", "Const")]


def _kind(layer: Any) -> str:
    return str(layer.get_rt_info()["layerType"].astype(str))


def layer_precision(layer: Any) -> str:
    """Return the element type that a layer computes in, as OpenVINO names it, e.g. ``f32`` or ``u8``."""
    return str(layer.get_rt_info()["runtimePrecision"].astype(str))


def openvino() -> Any:
    """Import the package without its converter, and so without its telemetry and absl.

    The package takes an absent converter, so it is hidden during the import: 70 ms less of 110. An app that
    asks for ``openvino.convert_model`` still gets it. If openvino was imported before, nothing changes.

    Raises:
        MissingDependency: openvino is not installed.
    """
    check_libraries("openvino", "libs")
    hidden = "openvino" not in sys.modules and CONVERTER not in sys.modules
    if hidden:
        sys.modules[CONVERTER] = None  # type: ignore[assignment]
    try:
        with need_package("openvino", "running an OpenVINO IR", extra="openvino", module="openvino"):
            import openvino as package
    finally:
        if hidden:
            del sys.modules[CONVERTER]
    if hidden and not hasattr(package, "__getattr__"):
        package.__getattr__ = _converter
    return package


def _converter(name: str) -> Any:
    if name != "convert_model":
        raise AttributeError(f"module 'openvino' has no attribute {name!r}")
    return import_module(CONVERTER).convert_model


def plain(problem: Exception) -> str:
    """Return OpenVINO's message without the lines that name its source location."""
    lines = [line.strip() for line in str(problem).splitlines()]
    remaining = [line for line in lines if line and not line.startswith(("Exception from ", "Check '"))]
    return " ".join(remaining) or " ".join(str(problem).split())

"""Run a .tflite file on TFLite Micro's interpreter. Requires numpy and the package tflite-micro.

It uses the reference kernels of a microcontroller without optimized ones, so it stands in for the device: its
outputs are the device's, its times are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import EngineError, MissingDependency, need_package
from edgekit.system.redirection import without_lines
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(
    packages=("tflite-micro", "ethos-u-vela"),
    export_files="edgekit_tflm.c_files",
    stands_in_for=lambda: "a microcontroller",
)
FILE = "model.tflite"

FIRST_ARENA_BYTES = 1 << 18
LARGEST_ARENA_BYTES = 1 << 30
TOO_SMALL = ("too small", "Failed to resize buffer", "Failed to allocate", "Requested", "resize failed")
"""What TFLM says if its arena is too small."""
RECORDED = re.compile(rb"Arena allocation (total|head|tail) (\d+) bytes")
ROUNDING_BYTES = 16
"""Alignment of an arena: tensorflow/lite/micro/micro_arena_constants.h."""
ARENA_MARGIN = 1.05
"""Largest arena over what the recording tells; at this one a file that does not load is not understood."""


class _End(NamedTuple):
    name: str
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...] | None
    scale: float | None
    zero_point: int
    model_dtype: np.dtype[Any]
    model_shape: tuple[int, ...]


def engine_version() -> str:
    """Return name and version, e.g. ``TFLite Micro 0.dev20261023182759``."""
    _module()
    from importlib.metadata import version  # here: it costs a cold start 15 ms

    return f"TFLite Micro {version('tflite-micro')}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> TflmRunner:
    """Load ``model.tflite``. TFLM computes on one thread.

    Args:
        options: ``inputs`` and ``outputs``: the stored form of each value, with ``scale`` and
            ``zero_point`` if an integer stands for a float; ``precision``; ``stands_in_for``: the device.
    """
    version, path = engine_version(), files[FILE]
    content = path.read_bytes()
    interpreter, arena = load(content, path)
    ends = []
    for specs, key, details in (
        (inputs, "inputs", interpreter.get_input_details),
        (outputs, "outputs", interpreter.get_output_details),
    ):
        of_file = {entry["name"]: (index, entry) for index, entry in enumerate(options[key])}
        if of_file.keys() != {spec.name for spec in specs}:
            raise EngineError(f"{path} is not of this model: its {key} are {', '.join(of_file)}")
        ends.append({of_file[s.name][0]: _end(s, of_file[s.name][1], details, of_file, path) for s in specs})
    return TflmRunner(interpreter, version, content, arena, ends[0], ends[1], options)


def _end(
    spec: TensorSpec,
    entry: Mapping[str, Json],
    details: Any,
    of_file: Mapping[str, tuple[int, Mapping[str, Json]]],
    path: Path,
) -> _End:
    detail = details(of_file[spec.name][0])
    stored, shape = np.dtype(detail["dtype"]), tuple(int(n) for n in detail["shape"])
    order = tuple(entry["order"]) if "order" in entry else None
    scale, zero_point = entry.get("scale"), int(entry.get("zero_point", 0))
    dtype = np.dtype(spec.dtype)
    expected = tuple(spec.shape[axis] for axis in order) if order else shape
    alike = scale is not None or dtype.kind == stored.kind or (dtype.kind in "iu" and stored.kind in "iu")
    if shape != expected or int(np.prod(shape)) != int(np.prod(spec.shape)) or not alike:
        found_spec = TensorSpec(spec.name, stored.name, shape)
        raise EngineError(f"{path} holds {found_spec} where the model has {spec}")
    return _End(spec.name, stored, shape, order, scale, zero_point, dtype, tuple(spec.shape))


def load(content: bytes, path: Path | str) -> tuple[Any, int]:
    """Load an interpreter with an arena that is large enough; return it and the arena's size in bytes.

    Raises:
        MissingDependency: the engine is not installed.
        EngineError: it refuses the content; the message names ``path``.
    """
    version, arena = engine_version(), FIRST_ARENA_BYTES
    while True:
        interpreter, messages = _interpreter(content, arena)
        if interpreter is not None:
            return interpreter, arena
        if arena >= LARGEST_ARENA_BYTES or not any(words in messages for words in TOO_SMALL):
            raise EngineError(f"{version} did not load {path}: {messages}")
        arena *= 4


def try_once(content: bytes, inputs: Sequence[Mapping[str, Json]]) -> None:
    """Load the content and run it on zeros.

    Raises:
        MissingDependency: the engine is not installed.
        EngineError: it refuses the content; the message names the node if TFLM does.
    """
    interpreter = load(content, FILE)[0]
    for index, entry in enumerate(inputs):
        interpreter.set_input(np.zeros(entry["shape"], entry["dtype"]), index)
    with without_lines(b"") as lines:
        try:
            interpreter.invoke()
            return
        except (RuntimeError, ValueError) as problem:
            reason = str(problem)
    messages = " ".join(b"".join(lines).decode("utf-8", "replace").split())
    raise EngineError(f"{engine_version()} failed to run: {messages or reason}")


def _interpreter(content: bytes, arena: int) -> tuple[Any, str]:
    with without_lines(b"") as lines:
        try:
            return _module().Interpreter.from_bytes(content, arena_size=arena), ""
        except MissingDependency:
            raise
        except Exception as problem:  # an engine may throw anything at a damaged file
            reason = " ".join(str(problem).split())
    text = " ".join(b"".join(lines).decode("utf-8", "replace").split())
    return None, text or reason


class TflmRunner:
    """Loaded ``model.tflite``."""

    device = "CPU"

    def __init__(
        self,
        interpreter: Any,
        version: str,
        content: bytes,
        arena: int,
        inputs: Mapping[int, _End],
        outputs: Mapping[int, _End],
        options: Mapping[str, Json],
    ) -> None:
        self.precision = str(options["precision"])
        self.stands_in_for = str(options["stands_in_for"])
        self._interpreter, self._version, self._content, self._arena = interpreter, version, content, arena
        self._inputs, self._outputs = dict(inputs), dict(outputs)
        self._ran = False

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        for index, end in self._inputs.items():
            self._interpreter.set_input(_stored(feeds[end.name], end), index)
        try:
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as problem:
            raise EngineError(f"{self._version} failed to run: {' '.join(str(problem).split())}") from None
        self._ran = True
        return {
            end.name: _converted(self._interpreter.get_output(i), end) for i, end in self._outputs.items()
        }

    def facts(self) -> dict[str, Json]:
        """Return the arena that TFLM recorded and the smallest one that the file loaded with, in bytes."""
        if not self._ran:
            return {}
        with without_lines(b"") as lines:
            self._interpreter.print_allocations()
        recorded = {kind.decode(): int(size) for kind, size in RECORDED.findall(b"".join(lines))}
        if "total" not in recorded:
            return {}
        arena = self._least_arena(recorded["total"])
        return {"arena": {"recorded_bytes": recorded, "bytes": arena}, "memory_bytes": {"ram": arena}}

    def _least_arena(self, recorded: int) -> int:
        """Return the arena for an app to declare: the recorded size, or a bit more if that does not load."""
        step = max(ROUNDING_BYTES, recorded // 100 // ROUNDING_BYTES * ROUNDING_BYTES)
        arena = -(-recorded // ROUNDING_BYTES) * ROUNDING_BYTES
        while arena <= recorded * ARENA_MARGIN + ROUNDING_BYTES:
            if _interpreter(self._content, arena)[0] is not None:
                return arena
            arena += step
        return self._arena

    def close(self) -> None:
        del self._interpreter


def _stored(array: Array, end: _End) -> Array:
    """Convert an array to the file's form: channels last, and integers if the file has these."""
    array = array.transpose(end.order) if end.order is not None else array.reshape(end.shape)
    if end.scale is not None:
        limits = np.iinfo(end.stored)
        steps = np.rint(array / np.float32(end.scale)) + end.zero_point
        array = np.clip(np.nan_to_num(steps), limits.min, limits.max)
    elif array.dtype.kind in "iu" and array.dtype != end.stored and array.size:
        limits = np.iinfo(end.stored)
        if array.min() < limits.min or array.max() > limits.max:
            raise EngineError(
                f"{end.name} contains {array.min()} to {array.max()}, but the .tflite file stores it as "
                f"{end.stored.name}"
            )
    return np.array(array, end.stored, order="C")  # ascontiguousarray gives a scalar an axis


def _converted(stored: Array, end: _End) -> Array:
    array = np.asarray(stored)
    if end.scale is not None:
        array = (array.astype(np.int32) - end.zero_point).astype(np.float32) * np.float32(end.scale)
    if end.order is not None:
        array = array.reshape(end.shape).transpose(np.argsort(end.order))
    return np.array(array.reshape(end.model_shape), end.model_dtype, order="C")


def _module() -> Any:
    purpose = "running a .tflite file as a microcontroller does"
    with need_package("tflite-micro", purpose, extra="tflm", module="tflite_micro"):
        from tflite_micro.python.tflite_micro import runtime
    return runtime

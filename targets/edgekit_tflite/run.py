"""Run a .tflite file on LiteRT or its predecessor tflite-runtime. Device side: numpy and one of the two.

The interpreter applies XNNPACK by itself. Set, invoke, get costs 1 us per call; a signature runner 2.3 us and
the newer CompiledModel 3.2 us. Inference itself takes the same time.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from edgekit.errors import EngineError, MissingDependency
from edgekit.system import cpu
from edgekit.system.redirection import without_lines
from edgekit.system.shared_libraries import check_libraries
from edgekit.target.contract import EngineInfo
from edgekit.target.kept_arrays import kept_copy
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(
    packages=("ai-edge-litert", "tflite-runtime"),
    node_reports="edgekit_tflite.node_reports",
    decoder="edgekit_tflite.decoder",
    accelerators="edgekit_tflite.accelerators",
)
FILE = "model.tflite"

Binding = tuple[str, int, "np.dtype[Any] | None", tuple[int, ...] | None, tuple[int, ...] | None]
"""Source name, tensor index, and what must be done to the array (None if it fits): dtype to convert
to, shape to give, axes to transpose by. An array that is transposed has its shape from that."""

PLANES_LIMIT = 8
"""Channels up to which writing plane by plane into N, H, W, C is faster than numpy's own transposition: of
3x480x640 floats 0.33 ms v 1.40, of 8 channels 0.06 v 0.08, of 16 0.10 v 0.05."""


def engine_version() -> str:
    """Return name and version of the installed engine, e.g. ``LiteRT 2.3.0`` or ``tflite-runtime 2.14.0``."""
    return load_engine()[0]


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
    watched: bool = False,
) -> TfliteRunner:
    """Load ``model.tflite``, which the engine maps. ``threads=None`` takes its default, one thread.

    Args:
        options: ``signature``: name of the signature; ``inputs`` and ``outputs``: for each value ``name``,
            its name in the source model, and ``signature_name``, its name in the signature;
            ``precision``: precision of products; ``needs_isa``: processor extensions, one of which is needed
            for it, else fp32.
        watched: Whether to keep every value of a run; then no delegate is applied, as it would keep none.
    """
    path = files[FILE]
    version, interpreter = open_interpreter(path, threads, watched)
    input_bindings, out_of = bind(interpreter, path, inputs, outputs, options)
    precision = "fp32" if watched or cpu.lacking(options) else options["precision"]
    return TfliteRunner(interpreter, version, input_bindings, out_of, precision)


def bind(
    interpreter: Any,
    path: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
) -> tuple[list[Binding], list[Binding]]:
    """Return the tensors of the model's inputs and outputs.

    Raises:
        EngineError: the file does not fit them.
    """
    signatures = interpreter._get_full_signature_list()
    signature = signatures.get(options["signature"])
    if signature is None:
        names = ", ".join(signatures) or "none"
        raise EngineError(f"{path} has no signature {options['signature']!r}; it has {names}")
    ends = (*interpreter.get_input_details(), *interpreter.get_output_details())
    details = {detail["index"]: detail for detail in ends}
    input_bindings = bindings(inputs, options["inputs"], signature["inputs"], details, path, is_input=True)
    _refuse_unfed(interpreter, signature["inputs"], input_bindings, path)
    out_of = bindings(outputs, options["outputs"], signature["outputs"], details, path, is_input=False)
    return input_bindings, out_of


def open_interpreter(path: Path, threads: int | None, watched: bool = False) -> tuple[str, Any]:
    """Return the engine's name and version, and its interpreter of any .tflite file, ready for inputs.

    Raises:
        MissingDependency: the engine is not installed.
        EngineError: it refused the file.
    """
    version, module = load_engine()
    try:
        with quiet():
            interpreter = module.Interpreter(
                model_path=str(path), num_threads=threads, **(_watching(module) if watched else {})
            )
            interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as problem:
        raise EngineError(f"{version} did not load {path}: {' '.join(str(problem).split())}") from None
    return version, interpreter


def _watching(module: ModuleType) -> dict[str, Any]:
    plain = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return {"experimental_preserve_all_tensors": True, "experimental_op_resolver_type": plain}


class TfliteRunner:
    """Loaded ``model.tflite``."""

    device = "CPU"

    def __init__(
        self,
        interpreter: Any,
        version: str,
        inputs: Sequence[Binding],
        outputs: Sequence[Binding],
        precision: str,
    ) -> None:
        self.precision = precision
        self.interpreter = interpreter
        self._version = version
        self._inputs = list(inputs)
        self._outputs = list(outputs)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        interpreter = self.interpreter
        for name, index, dtype, shape, order in self._inputs:
            array = feeds[name]
            if dtype is not None:
                array = converted(array, dtype, name)
            if order is not None:
                _write(interpreter.tensor(index)(), array, order)
            else:
                interpreter.set_tensor(index, array if shape is None else array.reshape(shape))
        try:
            interpreter.invoke()
        except (RuntimeError, ValueError) as problem:
            raise EngineError(f"{self._version} failed to run: {' '.join(str(problem).split())}") from None
        outputs = {}
        for name, index, dtype, shape, order in self._outputs:
            if order is not None:
                array = kept_copy(interpreter.tensor(index)().transpose(order))
            else:
                array = kept_copy(interpreter.tensor(index)())
            if dtype is not None:
                array = converted(array, dtype, name)
            outputs[name] = array if shape is None else array.reshape(shape)
        return outputs

    def another(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], options: Mapping[str, Json]
    ) -> SignatureRunner:
        """Open another signature of the same file on the same interpreter; they run one at a time."""
        return SignatureRunner(self.interpreter, self._version, outputs, options)

    def facts(self) -> dict[str, Json]:
        """Return the number of delegate partitions, and the operators outside them."""
        operators = self.interpreter._get_ops_details()
        delegates = [op for op in operators if op["op_name"] == "DELEGATE"]
        outputs = [index for _, index, *_ in self._outputs]
        left = outside_delegates(operators, outputs)
        names = {detail["index"]: detail["name"] for detail in self.interpreter.get_tensor_details()}
        return {
            "delegate_partitions": len(delegates),
            "outside_delegate": dict(sorted(Counter(op["op_name"] for op in left).items())),
            "outside_delegate_nodes": [
                {"op": op["op_name"], "output": names.get(int(op["outputs"][0]), "")} for op in left
            ],
        }

    def close(self) -> None:
        del self.interpreter


class SignatureRunner:
    """Further signature of a file. It is run by calls below the package's SignatureRunner: while that
    exists, ``invoke`` of the first signature is refused."""

    device = "CPU"

    def __init__(
        self, interpreter: Any, version: str, outputs: Sequence[TensorSpec], options: Mapping[str, Json]
    ) -> None:
        self.precision: str = options["precision"]
        self._interpreter, self._version, self._specs = interpreter, version, list(outputs)
        name = options["signature"]
        signature = interpreter._get_full_signature_list().get(name)
        if signature is None:
            raise EngineError(f"the .tflite file has no signature {name!r}")
        self._graph = interpreter._interpreter.GetSubgraphIndexFromSignature(name)
        interpreter._interpreter.AllocateTensors(self._graph)
        self._input_entries = {
            e["name"]: (signature["inputs"][e["signature_name"]], e) for e in options["inputs"]
        }
        self._out_of = {e["name"]: signature["outputs"][e["signature_name"]] for e in options["outputs"]}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        calls = self._interpreter._interpreter
        try:
            for name, (index, entry) in self._input_entries.items():
                array = converted(feeds[name], np.dtype(entry["dtype"]), name).reshape(entry["shape"])
                calls.SetTensor(index, array, self._graph)
            calls.Invoke(self._graph)
        except (RuntimeError, ValueError) as problem:
            raise EngineError(f"{self._version} failed to run: {' '.join(str(problem).split())}") from None
        results = {}
        for name, dtype, shape in self._specs:
            array = calls.GetTensor(self._out_of[name], self._graph)
            results[name] = converted(array, np.dtype(dtype), name).reshape(shape)
        return results

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        del self._interpreter


def outside_delegates(
    operators: Sequence[Mapping[str, Any]], outputs: Sequence[int]
) -> list[Mapping[str, Any]]:
    """Return the operators that no delegate took, in the order of the file.

    The interpreter lists the operators of the file and, after them, a DELEGATE for each partition, but not
    which operators a partition replaces. An operator runs by itself if a running part needs its output
    and no partition produces it: so we walk back from the outputs and from the partitions' inputs.
    """
    delegates = [op for op in operators if op["op_name"] == "DELEGATE"]
    delegated = {int(t) for op in delegates for t in op["outputs"]}
    makers = {int(t): op for op in operators if op["op_name"] != "DELEGATE" for t in op["outputs"]}
    needed = [*outputs, *(int(t) for op in delegates for t in op["inputs"])]
    ran: dict[int, Mapping[str, Any]] = {}
    while needed:
        tensor = needed.pop()
        if tensor in delegated or tensor not in makers or makers[tensor]["index"] in ran:
            continue
        maker = makers[tensor]
        ran[maker["index"]] = maker
        needed += [int(t) for t in maker["inputs"] if t >= 0]
    return [ran[index] for index in sorted(ran)]


def bindings(
    specs: Sequence[TensorSpec],
    described: Sequence[Mapping[str, Json]],
    signature: Mapping[str, int],
    details: Mapping[int, Mapping[str, Any]],
    path: Path,
    *,
    is_input: bool,
) -> list[Binding]:
    """Return the tensor of each input (``is_input``) or output, and the conversion of its array."""
    entries = {entry["name"]: entry for entry in described}
    names = {name: entry["signature_name"] for name, entry in entries.items()}
    bindings: list[Binding] = []
    for spec in specs:
        index = signature.get(names.get(spec.name, ""))
        if index is None:
            raise EngineError(f"the signature of {path} has no {spec.name!r}; it has {', '.join(signature)}")
        detail = details[index]
        ours, theirs = np.dtype(spec.dtype), np.dtype(detail["dtype"])
        shape = tuple(int(d) for d in detail["shape"])
        alike = (ours.kind in "iu" and theirs.kind == "i") or ours.kind == theirs.kind == "f"
        order = tuple(entries[spec.name].get("order", ())) or None
        # An open size of the model's may be static in the file, if the compiler computed it.
        fits = spec.fits(shape) if spec.is_open else int(np.prod(shape)) == int(np.prod(spec.shape))
        if order is not None:
            fits = sorted(order) == list(range(len(spec.shape))) and shape == tuple(
                spec.shape[axis] for axis in order
            )
        if (ours != theirs and not alike) or not fits:
            actual = TensorSpec(str(names[spec.name]), theirs.name, shape)
            raise EngineError(f"{path} holds {actual} where the model has {spec}")
        dtype = None if ours == theirs else (theirs if is_input else ours)
        new_shape = None if shape == spec.shape or order is not None else shape if is_input else spec.shape
        if order is not None and not is_input:
            order = tuple(order.index(axis) for axis in range(len(order)))
        bindings.append((spec.name, index, dtype, new_shape, order))
    return bindings


def _refuse_unfed(
    interpreter: Any, signature: Mapping[str, int], inputs: Sequence[Binding], path: Path
) -> None:
    """Reject unknown inputs: the engine would compute an input that is not set from stale memory."""
    fed, names = {index for _, index, *_ in inputs}, {index: name for name, index in signature.items()}
    for detail in interpreter.get_input_details():
        if detail["index"] not in fed:
            unfed = names.get(detail["index"], detail["name"])
            input_names = ", ".join(name for name, *_ in inputs) or "none"
            raise EngineError(
                f"{path} reads {unfed}, which is not an input of the model; its inputs are {input_names}"
            )


def _write(stored: Array, array: Array, order: tuple[int, ...]) -> None:
    if order == (0, 2, 3, 1) and array.shape[1] <= PLANES_LIMIT:
        for channel in range(array.shape[1]):
            stored[..., channel] = array[:, channel]
    else:
        stored[...] = array.transpose(order)


def converted(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Convert numbers to another width: TFLite's indices are int32, ONNX's int64; its floats are float32.

    Raises:
        EngineError: an integer does not fit.
    """
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    limits = np.iinfo(dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise EngineError(
            f"{name} contains {array.min()} to {array.max()}, but the .tflite file stores it as {dtype.name}"
        )
    return array.astype(dtype)


def load_engine() -> tuple[str, ModuleType]:
    """Return name with version, and the module of Interpreter. LiteRT if both are installed."""
    check_libraries("ai_edge_litert")
    try:
        import ai_edge_litert
        from ai_edge_litert import interpreter
    except ImportError as problem:
        if problem.name not in ("ai_edge_litert", "ai_edge_litert.interpreter"):
            raise
    else:
        return f"LiteRT {ai_edge_litert.__version__}", interpreter
    check_libraries("tflite_runtime")
    try:
        import tflite_runtime
        from tflite_runtime import interpreter
    except ImportError as problem:
        if problem.name not in ("tflite_runtime", "tflite_runtime.interpreter"):
            raise
        old = platform.machine() == "armv7l"  # LiteRT has no wheel for it
        raise MissingDependency(
            "tflite-runtime" if old else "ai-edge-litert",
            "running a .tflite file",
            "pip install 'numpy<2' tflite-runtime" if old else "",
            extra="" if old else "tflite",
        ) from None
    if int(np.__version__.partition(".")[0]) >= 2:  # its Interpreter() is a SystemError there
        raise MissingDependency("numpy 1", "running tflite-runtime", "pip install 'numpy<2'")
    return f"tflite-runtime {tflite_runtime.__version__}", interpreter


_loading = Lock()
_said: list[bool] = []


@contextmanager
def quiet() -> Iterator[None]:
    """Keep "INFO: Created TensorFlow Lite XNNPACK delegate for CPU." off stderr. The engine writes it once,
    from C++, and has no switch for it."""
    with _loading:
        if _said:
            yield
            return
        with without_lines(b"INFO: Created TensorFlow Lite") as dropped:
            yield
        _said.extend([True] * bool(dropped))

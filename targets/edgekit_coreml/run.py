"""Run an .mlpackage. On a Mac: Core ML, through coremltools. Elsewhere: the reference executor, with numpy
and ONNX Runtime's kernels, which computes the package's outputs; its times are not Apple hardware's.
"""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError, need_package
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(
    packages=("coremltools",),
    node_reports="edgekit_coreml.node_reports",
    exported={".mlpackage": "edgekit_coreml.exported"},
    stands_in_for=lambda: "" if _on_a_mac() else "Apple hardware",
)
PACKAGE = "model.mlpackage"
MANIFEST = f"{PACKAGE}/Manifest.json"
OVERFLOWS_NAMED = 8
INT32 = np.iinfo(np.int32)

_Predict = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def engine_version() -> str:
    """Return name and version of the engine here, e.g. ``reference executor, ONNX Runtime 1.31.1``."""
    if _on_a_mac():
        return f"Core ML of macOS {platform.mac_ver()[0]}, coremltools {_coremltools().__version__}"
    from edgekit_coreml.interpreter.one_node import onnxruntime

    return f"reference executor, ONNX Runtime {onnxruntime().__version__}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> CoreMlRunner:
    """Load ``model.mlpackage``.

    Args:
        options: ``precision``; ``function``, if it is not ``main``; ``inputs`` and ``outputs``: for each
            value its ``name``, and in the package its ``mil`` name, ``dtype`` and ``shape``.
        threads: Number of threads of the reference executor; Core ML decides for itself.
    """
    package = files[MANIFEST].parent
    input_map, out_of = (
        value_bindings(specs, options[key], key) for specs, key in ((inputs, "inputs"), (outputs, "outputs"))
    )
    precision, function = str(options.get("precision", "fp32")), str(options.get("function", ""))
    if _on_a_mac():
        return CoreMlRunner(
            _predict_on_a_mac(package, function), input_map, out_of, precision, "Core ML", "", dict
        )
    from edgekit_coreml.interpreter.execute import Executor, overflows
    from edgekit_coreml.interpreter.program import find_in_package, read_package

    engine_version()  # says what to install before anything is read
    program = read_package(*find_in_package(package / "Manifest.json"), function or "main")
    executor = Executor(program, threads=threads or 1)

    def facts() -> dict[str, Json]:
        figures: dict[str, Json] = {"mil_operators": len(executor.program.ops), "opset": executor.program.ios}
        if executor.extremes:
            name, size = max(executor.extremes.items(), key=lambda item: item[1])
            shown = float(f"{size:.4g}") if math.isfinite(size) else None  # JSON has no infinity
            figures["float16_largest"] = {"value": name, "size": shown}
            figures["float16_overflows"] = list(overflows(executor.extremes))[:OVERFLOWS_NAMED]
        return figures

    return CoreMlRunner(executor.run, input_map, out_of, precision, "CPU", "Apple hardware", facts)


class CoreMlRunner:
    """A loaded package.

    Attributes:
        device: ``Core ML``, which chooses between CPU, GPU and Neural Engine, or ``CPU``.
        stands_in_for: ``Apple hardware`` for the reference executor; empty for Core ML itself.
    """

    def __init__(
        self,
        predict: _Predict,
        inputs: Sequence[tuple[str, str, np.dtype[Any], tuple[int, ...]]],
        outputs: Sequence[tuple[str, str, np.dtype[Any], tuple[int, ...]]],
        precision: str,
        device: str,
        stands_in_for: str,
        facts: Callable[[], dict[str, Json]],
    ) -> None:
        self.device = device
        self.precision = precision
        self.stands_in_for = stands_in_for
        self._predict = predict
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self._facts = facts

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        arguments = {}
        for name, mil, dtype, shape in self._inputs:
            arguments[mil] = _narrowed(feeds[name], dtype, name).reshape(shape)
        outputs = self._predict(arguments)
        arrays = {}
        for name, mil, dtype, shape in self._outputs:
            if mil not in outputs:
                raise EngineError(f"the package gives no {mil}; it gives {', '.join(outputs)}")
            array = np.asarray(outputs[mil])
            if array.size != int(np.prod(shape)):
                raise EngineError(
                    f"the package gives {mil} as {list(array.shape)}, the model as {list(shape)}"
                )
            arrays[name] = np.array(array, dtype).reshape(shape)  # a copy: the caller's
        return arrays

    def facts(self) -> dict[str, Json]:
        return self._facts()

    def close(self) -> None:
        del self._predict
        if self.stands_in_for:
            from edgekit_coreml.interpreter.one_node import release_sessions

            release_sessions()


def value_bindings(
    specs: Sequence[TensorSpec], described: Sequence[Mapping[str, Json]], description: str
) -> list[tuple[str, str, np.dtype[Any], tuple[int, ...]]]:
    """Return each value's name, name in the package, and the dtype and shape that it is converted to."""
    by_name = {entry["name"]: entry for entry in described}
    bindings = []
    for spec in specs:
        entry = by_name.get(spec.name)
        if entry is None:
            raise EngineError(
                f"the package has no {description[:-1]} {spec.name!r}; it has {', '.join(by_name)}"
            )
        if int(np.prod(entry["shape"])) != int(np.prod(spec.shape)):
            raise EngineError(f"the package holds {spec.name} as {entry['shape']}, the model as {spec}")
        inward = description == "inputs"
        dtype = np.dtype(entry["dtype"] if inward else spec.dtype)
        shape = tuple(entry["shape"]) if inward else spec.shape
        bindings.append((spec.name, str(entry["mil"]), dtype, shape))
    return bindings


def _narrowed(array: Array, dtype: np.dtype[Any], name: str) -> Array:
    """Convert an array to the package's dtype: Core ML's integers are int32."""
    if array.dtype == dtype:
        return array
    if array.dtype.kind in "iu" and array.size and (array.min() < INT32.min or array.max() > INT32.max):
        raise EngineError(
            f"{name} contains {array.min()} to {array.max()}, but the package stores it as int32"
        )
    return array.astype(dtype)


def _on_a_mac() -> bool:
    return platform.system() == "Darwin"


def _coremltools() -> Any:
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    with need_package("coremltools", "running an .mlpackage on a Mac", extra="coreml", module="coremltools"):
        import coremltools
    return coremltools


def _predict_on_a_mac(package: Path, function: str) -> _Predict:
    """Load Core ML's own runtime on all compute units. Type-checked but never run here: it needs a Mac."""
    tools = _coremltools()
    try:
        model = tools.models.MLModel(
            str(package), compute_units=tools.ComputeUnit.ALL, function_name=function or None
        )
    except Exception as problem:  # coremltools raises many classes for what Core ML refuses
        raise EngineError(f"{engine_version()} did not load {package}: {problem}") from None

    def predict(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        try:
            outputs: Mapping[str, Array] = model.predict(dict(feeds))
        except Exception as problem:  # see above
            raise EngineError(f"{engine_version()} failed to run: {problem}") from None
        return outputs

    return predict

"""JAX: functions, jitted or not, and Flax modules, from Python, by jax2onnx. Checked with JAX 0.10, Flax 0.12
and jax2onnx 0.17.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.compiler.importers.jax_pools import pool_two_axes
from edgekit.compiler.importers.original import Original, Samples, convert_object, renamed_outputs, serialized
from edgekit.errors import MissingDependency, ModelError, UsageError
from edgekit.tensor_spec import Array

INSTALL = "pip install jax jax2onnx"


def recognize(head: bytes, path: Path) -> bool:
    """Return False: JAX has no file format for functions that its exporter takes."""
    return False


def recognize_object(model: object) -> bool:
    """Return whether the object is a plain or jitted function, or a callable module of Flax or Equinox."""
    if isinstance(model, FunctionType | MethodType | partial):
        return True
    modules = {cls.__module__ for cls in type(model).__mro__}
    if any(module.split(".")[0] in ("jaxlib", "jax") for module in modules):
        return callable(model)
    return callable(model) and any(module.startswith(("flax.nnx", "equinox.")) for module in modules)


def to_onnx(source: Any, options: ImportOptions) -> Converted:
    name = getattr(source, "__name__", type(source).__name__)
    return convert_object(partial(_original, source, options, name), name)


def _original(function: Any, options: ImportOptions, name: str) -> Original:
    for package, needed_for in (("jax", "importing JAX models"), ("jax2onnx", "exporting JAX models")):
        if find_spec(package) is None:
            line = INSTALL if package == "jax" else "pip install jax2onnx"
            raise MissingDependency(package, needed_for, line)
    import jax

    values = options.example_inputs
    if values is None:
        raise UsageError(
            f"{name}: JAX needs example inputs to trace a function. Pass example_inputs=(np.zeros((1, 224, "
            "224, 3), np.float32),), with your shape and dtype"
        )
    by_name = dict(values) if isinstance(values, Mapping) else {}
    examples = () if by_name else (values,) if hasattr(values, "shape") else tuple(values)
    leaves, tree = jax.tree_util.tree_flatten((examples, by_name))
    names = _parameter_names(function, examples) + _input_names(by_name)

    def flat(*arrays: Any) -> Any:
        args, kwargs = jax.tree_util.tree_unflatten(tree, arrays)
        return jax.tree_util.tree_leaves(function(*args, **kwargs))

    def export() -> Converted:
        from jax2onnx import to_onnx as convert

        types = [jax.ShapeDtypeStruct(np.shape(leaf), jax.numpy.asarray(leaf).dtype) for leaf in leaves]
        try:
            proto = convert(flat, types, model_name=name, input_names=names)
        except TypeError as problem:
            if "positional argument" not in str(problem):
                raise
            raise ModelError(
                f"{name}: jax2onnx takes the options of this function by name only: pass them by name, e.g. "
                f"max_pool(x, window_shape=(2, 2), strides=(2, 2)); it says: {problem}"
            ) from None
        results = jax.eval_shape(function, *examples, **by_name)
        renamed_outputs(proto, _leaf_names(results))
        pool_two_axes(proto)
        return Converted(serialized(proto))

    def run(samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
        rows = []
        for sample in samples:
            arrays = [sample.get(leaf_name, leaf) for leaf_name, leaf in zip(names, leaves, strict=True)]
            results: list[Array] = [np.asarray(leaf) for leaf in flat(*map(jax.numpy.asarray, arrays))]
            rows.append(dict(zip(outputs, results, strict=True)))
        return FrameworkOutputs(f"JAX {jax.__version__}", rows)

    return Original(export, run, "jax2onnx")


def _parameter_names(function: Any, examples: tuple[Any, ...]) -> list[str]:
    """Return the function's names for its inputs; names of nested inputs have their keys appended."""
    import jax

    try:
        parameters = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is not parameter.VAR_POSITIONAL
        ]
    except (TypeError, ValueError):
        parameters = []
    names = []
    for number, example in enumerate(examples):
        prefix = parameters[number] if number < len(parameters) else f"input_{number}"
        paths, _ = jax.tree_util.tree_flatten_with_path(example)
        names += ["_".join([prefix, *map(_key, path)]) for path, _ in paths]
    return names


def _input_names(by_name: Mapping[str, Any]) -> list[str]:
    import jax

    return ["_".join(map(_key, path)) for path, _ in jax.tree_util.tree_flatten_with_path(by_name)[0]]


def _leaf_names(result: Any) -> list[str]:
    import jax

    names = []
    for path, _ in jax.tree_util.tree_flatten_with_path(result)[0]:
        parts = [_key(key) for key in path]
        names.append("_".join(["output", *parts] if not parts or parts[0].isdigit() else parts))
    return names


def _key(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


IMPORTER = Importer("JAX", (), recognize, to_onnx, ("jax", "jax2onnx", "flax"), recognize_object)

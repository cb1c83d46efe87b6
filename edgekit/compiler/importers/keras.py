"""Keras 3: models from Python and ``.keras`` files, by ``model.export(format="onnx")``.

It works with the backends JAX (through jax2onnx) and PyTorch (through torch's older exporter, which lacks
attention), and TensorFlow (through tf2onnx; not run). Checked with Keras 3.15 on JAX 0.10 and jax2onnx 0.17.

Archives are checked before Keras loads them. A configuration names classes and functions by module, which
Keras imports: Lambda layers hold compiled Python, some versions call any function of any module
(CVE-2025-1550), TFSMLayer and TorchModuleWrapper load programs of other formats, lookups read files. HDF5
reads other files by links and external storage. Keras rejects more of these with each version; this module
always rejects them all. Checked with Keras 3.15.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgekit.compiler.importers.child_process import convert_file
from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.compiler.importers.file_kinds import KERAS, file_kind
from edgekit.compiler.importers.jax_pools import pool_two_axes
from edgekit.compiler.importers.original import Original, Samples, convert_object, renamed_outputs, serialized
from edgekit.compiler.importers.zip_members import INFLATED_BYTES, INFLATED_TIMES, Members, open_members
from edgekit.errors import MissingDependency, ModelError
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Array

INSTALL = "pip install keras jax jax2onnx"
EXPORTERS = {"jax": "jax2onnx", "torch": "onnxscript", "tensorflow": "tf2onnx"}
"""Backend -> the package by which Keras exports its models to ONNX, in the order of preference."""


def recognize(head: bytes, path: Path) -> bool:
    """Return whether the file is a zip archive of Keras 3."""
    return file_kind(head, path).kind == KERAS


def recognize_object(model: object) -> bool:
    """Return whether the object is a model: functional, sequential or subclassed."""
    return any(
        cls.__name__ == "Model" and cls.__module__.split(".")[0] == "keras" for cls in type(model).__mro__
    )


def to_onnx(source: Any, options: ImportOptions) -> Converted:
    """Export a file in a child process, an object in this one."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            if not recognize(file.read(16), source):
                raise ModelError(f"{source.name}: is not a Keras 3 file (model.save), or is damaged")
        return convert_file(__name__, source, options)
    return convert_object(partial(_original, source, options), type(source).__name__)


def load(path: Path, options: ImportOptions) -> Original:
    """Load the model of a file in the child process. Keras itself rejects code in it (lambda layers)."""
    if not options.trust_pickle:
        check_keras(path)
    if find_spec("keras") is None:
        raise MissingDependency("keras", "importing Keras models", INSTALL)
    if not os.environ.get("KERAS_BACKEND"):
        complete = [b for b, exporter in EXPORTERS.items() if find_spec(b) and find_spec(exporter)]
        installed = [backend for backend in EXPORTERS if find_spec(backend)]
        if not installed:
            raise MissingDependency("jax", "running Keras models", INSTALL)
        os.environ["KERAS_BACKEND"] = (complete or installed)[0]
    if not options.trust_pickle:
        check_weights(path)
    import keras

    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=not options.trust_pickle)
    except TypeError as problem:  # Keras' word for a class that is not registered
        line = str(problem).strip().splitlines()[0] if str(problem).strip() else "TypeError"
        raise ModelError(
            f"{path.name}: Keras cannot load it: {line[:200]}; if it has custom layers, pass the model from "
            "Python, where they are defined: edgekit.build(model, targets=[...])"
        ) from None
    except ValueError as problem:
        if "safe_mode" not in str(problem) and "unsafe" not in str(problem):
            raise
        raise ModelError(
            f"{path.name}: contains Python code (a Lambda layer), which runs when the file is loaded; load "
            "it yourself, and pass the model from Python: edgekit.build(model, targets=[...])"
        ) from None
    return _original(model, options)


def _original(model: Any, options: ImportOptions) -> Original:
    import keras

    backend = keras.backend.backend()
    exporter = EXPORTERS.get(backend)
    if exporter is None:
        raise ModelError(
            f"Keras with the backend {backend} cannot export ONNX; set KERAS_BACKEND=jax ({INSTALL})"
        )
    if find_spec(exporter) is None:
        raise MissingDependency(
            exporter, f"exporting Keras models on the backend {backend}", f"pip install {exporter}"
        )
    advice = "" if backend == "torch" else "try KERAS_BACKEND=torch, with which PyTorch exports it"
    return Original(
        partial(_export, model, options), partial(_run, model), f"Keras {keras.__version__}", advice
    )


def _export(model: Any, options: ImportOptions) -> Converted:
    import onnx

    # One that was loaded and never called is refused by the exporter.
    model(_zeros(model, options), training=False)
    with TemporaryDirectory(prefix="edgekit-keras-") as name:
        path = os.path.join(name, "model.onnx")
        model.export(path, format="onnx", verbose=False, input_signature=_signature(model, options))
        proto = onnx.load(path)
    names = [str(output_name) for output_name in getattr(model, "output_names", ["output"])]
    renamed_outputs(proto, names)
    pool_two_axes(proto)
    return Converted(serialized(proto))


def _signature(model: Any, options: ImportOptions) -> Any:
    """Return the inputs' shapes: those given, else with 1 for dynamic dimensions, since loops of recurrent
    layers need a static batch. Return None for a model without a signature of its own."""
    import keras

    if _inputs(model) is None:
        return None

    def spec(tensor: Any) -> Any:
        shape = options.shapes.get(tensor.name) or options.shapes.get("")
        shape = shape or tuple(1 if d is None else d for d in tensor.shape)
        return keras.InputSpec(shape=shape, dtype=tensor.dtype, name=tensor.name)

    return [keras.tree.map_structure(spec, _inputs(model))]


def _inputs(model: Any) -> Any:
    """Return the model's symbolic inputs, nested like its arguments; None for a subclassed model."""
    import keras

    if not getattr(model, "inputs", None):
        return None
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _zeros(model: Any, options: ImportOptions) -> Any:
    import keras

    if options.example_inputs is not None:
        inputs = options.example_inputs
        if isinstance(inputs, Mapping):
            return dict(inputs)
        return inputs if hasattr(inputs, "shape") else inputs[0] if len(inputs) == 1 else list(inputs)
    if _inputs(model) is None:
        raise ModelError(
            f"{type(model).__name__} has never been called, so the shapes of its inputs are unknown: pass "
            "edgekit.build(model, example_inputs=(array,), targets=[...])"
        )
    return keras.tree.map_structure(
        lambda tensor: np.zeros([1 if d is None else d for d in tensor.shape], str(tensor.dtype)),
        _inputs(model),
    )


def _run(model: Any, samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
    import keras

    rows = []
    for sample in samples:
        arrays = [sample[name] for name in inputs]
        structure = _inputs(model)
        packed = keras.tree.pack_sequence_as(structure, arrays) if structure is not None else arrays[0]
        leaves = keras.tree.flatten(model(packed, training=False))
        results: list[Array] = [np.asarray(keras.ops.convert_to_numpy(leaf)) for leaf in leaves]
        rows.append(dict(zip(outputs, results, strict=True)))
    return FrameworkOutputs(f"Keras {keras.__version__} on {keras.backend.backend()}", rows)


IMPORTER = Importer(
    "Keras", (".keras",), recognize, to_onnx, ("keras", "jax", "jax2onnx", "torch"), recognize_object
)


CONFIG, WEIGHTS = "config.json", "model.weights.h5"
PACKAGES = (
    "activations", "constraints", "dtype_policies", "initializers", "layers", "losses", "metrics", "models",
    "ops", "optimizers", "quantizers", "random", "regularizers", "trainers",
)  # fmt: skip
"""Of ``keras`` and ``keras.src``: what models are made of."""
OTHER_PACKAGES = ("keras_hub", "keras_cv", "keras_nlp")
CODE_CLASSES = ("Lambda", "__lambda__")
FOREIGN_CLASSES = ("TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
OBJECTS_LIMIT = 1_000_000


def check_keras(path: Path) -> None:
    """Check the imports and files that a ``.keras`` file would make Keras load.

    Raises:
        ModelError: it names anything other than Keras layers, or reads other files.
    """
    with open_members(path) as members:
        for name in members.by_name:
            if name.startswith("/") or ".." in name.split("/") or "\\" in name:
                raise ModelError(
                    f"{path.name}: the archive has a member named {brief(name)}; save the model again"
                )
        try:
            config = json.loads(members.read(CONFIG))
        except (ValueError, RecursionError) as problem:
            raise ModelError(
                f"{path.name}: {CONFIG} is not valid JSON: {problem}; save the model again"
            ) from None
        _check_config(path, config)


def check_weights(path: Path) -> None:
    """Check the HDF5 file of a ``.keras`` file, with h5py, which Keras needs too.

    Raises:
        ModelError: it reads other files, or is small and describes large arrays.
    """
    import h5py

    with open_members(path) as members:
        if WEIGHTS not in members.by_name:
            return
        try:
            with members.archive.open(members.by_name[WEIGHTS]) as stream, h5py.File(stream, "r") as file:
                _check_objects(members, h5py, file)
        except (OSError, ValueError, KeyError) as problem:
            raise ModelError(f"{path.name}: {WEIGHTS} is damaged: {problem}; save the model again") from None


def _check_config(path: Path, config: Any) -> None:
    pending = [config]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        if not isinstance(value, dict):
            continue
        pending += value.values()
        name, module = value.get("class_name"), value.get("module")
        if name in CODE_CLASSES:
            raise ModelError(
                f"{path.name}: contains Python code (a Lambda layer), which runs when the file is loaded; "
                "load it yourself, and pass the model from Python: edgekit.build(model, targets=[...])"
            )
        if name in FOREIGN_CLASSES:
            raise ModelError(
                f"{path.name}: has a {name} layer, which loads a model of another framework; import "
                "that model instead"
            )
        if isinstance(name, str) and module is not None and not _is_known(module):
            raise ModelError(
                f"{path.name}: {brief(f'{module}.{name}')} is not a Keras layer; if the model has custom "
                "layers, pass it from Python, where they are defined: edgekit.build(model, targets=[...])"
            )
        if isinstance(value.get("vocabulary"), str):
            raise ModelError(
                f"{path.name}: a layer reads its vocabulary from the file {brief(value['vocabulary'])}; set "
                "it to a list, and save the model again"
            )


def _is_known(module: object) -> bool:
    parts = str(module).split(".")
    if parts[0] == "keras":
        inner = parts[2:] if parts[1:2] == ["src"] else parts[1:]
        return not inner or inner[0] in PACKAGES
    return parts == ["builtins"] or parts[0] in OTHER_PACKAGES


def _check_objects(members: Members, h5py: Any, file: Any) -> None:
    name, size, count = members.path.name, 0, 0
    limit = INFLATED_TIMES * members.by_name[WEIGHTS].file_size + INFLATED_BYTES
    pending = [file]
    while pending:
        group = pending.pop()
        for key in group:
            count += 1
            if count > OBJECTS_LIMIT:
                raise ModelError(f"{name}: {WEIGHTS} has more than {OBJECTS_LIMIT} objects")
            if isinstance(group.get(key, getlink=True), h5py.SoftLink | h5py.ExternalLink):
                raise ModelError(f"{name}: {WEIGHTS} has a link, {brief(key)}; save the model again")
            entry = group[key]
            if isinstance(entry, h5py.Group):
                pending.append(entry)
            elif isinstance(entry, h5py.Dataset):
                if entry.external or entry.is_virtual:
                    raise ModelError(
                        f"{name}: {WEIGHTS} reads another file for {brief(key)}; save the model again"
                    )
                size += entry.nbytes
                if size > limit:
                    raise ModelError(
                        f"{name}: the arrays in {WEIGHTS} have {size} bytes; a file of this size may have "
                        f"{limit}; save the model again without compression"
                    )

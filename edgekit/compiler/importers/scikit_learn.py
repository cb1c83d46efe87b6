"""scikit-learn: fitted estimators and pipelines from Python, and trusted pickles (``.pkl``, ``.joblib``), by
skl2onnx. Checked with scikit-learn 1.9 and skl2onnx 1.20. Boosted trees of other libraries (boosted_trees.py)
have the same interface, and are steps of the same pipelines.

Two forms that skl2onnx 1.20 writes wrong are repaired.

Isotonic calibration takes the nearest threshold (sklearn-onnx 1151) instead of interpolating:

    y = y[0] + sum of (y[i+1] - y[i]) * clip((x - x[i]) / (x[i+1] - x[i]), 0, 1)

Neighbours weighted by distance have equal weights (sklearn-onnx 611), because distances get a minus sign.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.importers.boosted_trees import (
    LIBRARIES,
    Library,
    boosted_answers,
    converted_boosted,
    index_note,
    library_of,
    library_of_estimator,
    library_of_file,
    load_boosted,
    register_converters,
)
from edgekit.compiler.importers.child_process import convert_file
from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.compiler.importers.file_kinds import PLAIN_PICKLE, file_kind
from edgekit.compiler.importers.named_columns import numeric_model, with_unknown_categories
from edgekit.compiler.importers.original import (
    Original,
    Samples,
    convert_object,
    package_version,
    serialized,
    signature_names,
)
from edgekit.errors import MissingDependency, ModelError, UsageError
from edgekit.tensor_spec import Array

INSTALL = "pip install scikit-learn skl2onnx"
OPSETS = {"": 18, "ai.onnx.ml": 3}
"""Of the ONNX model. IsolationForest has no converter for newer ones of the second."""


def recognize(head: bytes, path: Path) -> bool:
    """Return whether the file is a pickle of scikit-learn's, a plain one without classes of torch, or of
    boosted trees."""
    if library_of_file(head):
        return True
    kind = file_kind(head, path)
    return kind.kind == PLAIN_PICKLE and (kind.has("sklearn") or not kind.has("torch"))


def recognize_object(model: object) -> bool:
    """Return whether the object is an estimator, or a model of boosted trees."""
    return library_of(model) is not None or any(
        cls.__name__ == "BaseEstimator" and cls.__module__ == "sklearn.base" for cls in type(model).__mro__
    )


def to_onnx(source: Any, options: ImportOptions) -> Converted:
    """Export a file in a child process, an estimator in this one."""
    if not isinstance(source, Path):
        converted = convert_object(partial(_original, source), type(source).__name__)
        return _with_example(converted, source, options)
    head = _head(source)
    if library_of_file(head):
        return _with_example(convert_file(__name__, source, options), source, options)
    kind = file_kind(head, source)
    whose = " of scikit-learn" if kind.has("sklearn") else ""
    alternative = "pass the fitted estimator itself to edgekit.build, or an .onnx file from skl2onnx"
    options.need_trust(source, f"a Python pickle{whose}", alternative)
    return _with_example(convert_file(__name__, source, options), source, options)


def _with_example(converted: Converted, source: Any, options: ImportOptions) -> Converted:
    """Add the user's rows, which are compared instead of random ones."""
    rows = options.example_inputs
    if rows is None:
        return converted
    if isinstance(rows, tuple | list) and len(rows) == 1:
        (rows,) = rows
    (name,) = signature_names(converted.onnx)[0]
    if isinstance(rows, Mapping) and name in rows:
        rows = rows[name]
    named = None if isinstance(source, Path) else numeric_model(getattr(source, "best_estimator_", source))
    try:
        x = named[1].encoded(rows) if named and hasattr(rows, "columns") else np.asarray(rows, np.float32)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"example_inputs are not rows of numbers: {problem}") from None
    return converted._replace(example={name: np.atleast_2d(x)})


def load(path: Path, options: ImportOptions) -> Original:
    if library := library_of_file(_head(path)):
        return _original(load_boosted(path, library))
    if find_spec("sklearn") is None:
        raise MissingDependency("scikit-learn", "importing its models", INSTALL)
    import joblib

    loaded = joblib.load(path)
    if not recognize_object(loaded):
        kind = f"{type(loaded).__module__}.{type(loaded).__name__}"
        raise ModelError(f"{path.name} contains a {kind}, which is not a scikit-learn estimator")
    return _original(loaded)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(32)


def _original(model: Any) -> Original:
    library = library_of(model)
    if library is None and find_spec("skl2onnx") is None:
        raise MissingDependency("skl2onnx", "exporting scikit-learn's models", "pip install skl2onnx")
    model = getattr(model, "best_estimator_", model)
    owner = library or library_of_estimator(_final(model))
    named = numeric_model(model) if library is None else None

    def compute(x: Array, count: int) -> list[Array]:
        if library is not None:
            return boosted_answers(model, library, x, count)
        return _answers(model, x if named is None else named[1].decoded(x), count)

    ranks: list[int] = []

    def export() -> Converted:
        # Imported here, because importers are asked about every file.
        from edgekit.compiler.importers.threshold_rows import check_thresholds
        from edgekit.compiler.model.onnx_file import open_bytes, signature

        result, name = _export(named[0] if named else model, library), type(model).__name__
        if named is not None:
            example = {signature_names(result.onnx)[0][0]: named[1].example()}
            notes = (*result.notes, named[1].note())
            result = result._replace(onnx=with_unknown_categories(result.onnx), notes=notes, example=example)
        ranks[:] = [len(spec.shape) for spec in signature(open_bytes(result.onnx, name))[1]]
        check_thresholds(result.onnx, name, owner.name if owner else "scikit-learn", compute)
        return result

    def run(samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
        if not ranks:
            export()
        rows = []
        for sample in samples:
            (x,) = (sample[name] for name in inputs)
            arrays = [
                array.reshape((len(x), -1) if rank > 1 else -1)
                for array, rank in zip(compute(x, len(outputs)), ranks, strict=True)
            ]
            rows.append(dict(zip(outputs, arrays, strict=True)))
        runs_with = [] if owner is not None and _final(model) is model else [("scikit-learn", "scikit-learn")]
        runs_with += [(owner.name, owner.package)] if owner is not None else []
        engine = " with ".join(f"{name} {package_version(package)}" for name, package in runs_with)
        return FrameworkOutputs(engine, rows)

    return Original(export, run, owner.exporter if owner else "skl2onnx")


def _export(model: Any, library: Library | None) -> Converted:
    if library is not None:
        proto, notes = converted_boosted(model, library)
        return Converted(serialized(proto), notes)
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise ModelError(f"{type(model).__name__} {_without_features(model)}")
    names = _class_names(_final(model))
    if not names:
        return Converted(serialized(_converted(model, int(count))))
    numbered = copy.deepcopy(model)
    final = _final(numbered)
    attribute = "_classes" if isinstance(getattr(type(final), "classes_", None), property) else "classes_"
    setattr(final, attribute, np.arange(len(names)))
    return Converted(serialized(_converted(numbered, int(count))), (index_note(names),))


def _without_features(model: Any) -> str:
    """Return why a model has no number of features, and what to do."""
    first = model.steps[0][1] if hasattr(model, "steps") else model
    if not type(first).__module__.startswith("sklearn.feature_extraction"):
        return "is not fitted: fit it first"
    return (
        f"begins with a {type(first).__name__}, which takes texts or dictionaries; EdgeKit builds models of "
        "numbers. Pass the steps behind it, edgekit.build(pipeline[1:], targets=[...]); run it in your app"
    )


def _converted(model: Any, count: int) -> Any:
    """Convert with the scores as a tensor. LinearSVC lacks the option and needs another in a pipeline."""
    register_converters(model)
    register_interpolation()
    model = copy.deepcopy(model)
    for part in [model, *model.get_params(deep=True).values()]:
        if hasattr(part, "flatten_transform"):  # of transform() only, and skl2onnx refuses True
            part.flatten_transform = False
            part.weights = None if part.weights is None else np.asarray(part.weights)  # it refuses lists
    for options in ({"zipmap": False}, {"raw_scores": False}):
        try:
            return _convert(model, count, options)
        except NameError:
            continue
    return _convert(model, count, {})


def _convert(model: Any, count: int, options: dict[str, bool]) -> Any:
    from skl2onnx import to_onnx as convert
    from skl2onnx.common.data_types import FloatTensorType

    types = [("X", FloatTensorType([None, count]))]
    model_options = {id(_final(model)): options} if options and hasattr(_final(model), "classes_") else None
    proto = convert(model, initial_types=types, target_opset=OPSETS, options=model_options)
    repair_distances(proto)
    return proto


def _final(model: Any) -> Any:
    return model.steps[-1][1] if hasattr(model, "steps") else model


def _class_names(final: Any) -> list[str]:
    classes = getattr(final, "classes_", None)
    if classes is None or isinstance(classes, list) or classes.dtype.kind in "iub":
        return []
    return [str(class_name) for class_name in classes]


def _answers(model: Any, x: Array, count: int) -> list[Array]:
    """Compute the outputs that skl2onnx's models have: predictions, and scores if there are two outputs."""
    final = _final(model)
    if not hasattr(model, "predict"):
        return [np.asarray(model.transform(x), np.float32)]
    first = np.asarray(model.predict(x))
    if _class_names(final):
        first = np.searchsorted(final.classes_, first)
    label = first.dtype.kind in "iub"
    first = first.astype(np.int64 if label else np.float32)
    if count == 1:
        return [first]
    if getattr(final, "voting", "") == "hard":  # skl2onnx's scores are the shares of the votes
        votes = np.asarray(model.transform(x))
        weights = np.ones(votes.shape[1]) if final.weights is None else np.asarray(final.weights)
        vote_shares = [(votes == k) @ weights / weights.sum() for k in range(len(final.classes_))]
        return [first, np.stack(vote_shares, axis=1).astype(np.float32)]
    for method in ("predict_proba", "decision_function", "transform"):
        if hasattr(model, method):
            return [first, np.asarray(getattr(model, method)(x), np.float32)]
    raise ModelError(f"{type(final).__name__} has two outputs, and the meaning of the second is unknown")


IMPORTER = Importer(
    "scikit-learn",
    (".pkl", ".pickle", ".joblib"),
    recognize,
    to_onnx,
    ("scikit-learn", "skl2onnx", "onnxmltools", *(library.package for library in LIBRARIES)),
    recognize_object,
)


def register_interpolation() -> None:
    from skl2onnx.operator_converters import calibrated_classifier_cv

    calibrated_classifier_cv._transform_isotonic = _interpolate


def interpolation(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return the starts, inverse lengths and rises of the segments between thresholds, float32."""
    starts = x.astype(np.float32)
    # Thresholds that are one float32 are a step of the smallest width.
    widths = np.maximum(np.diff(starts), np.spacing(np.maximum(np.abs(starts[:-1]), np.float32(1e-6))))
    return starts[:-1], (1 / widths).astype(np.float32), np.diff(y).astype(np.float32)


def _interpolate(scope: Any, container: Any, model: Any, x: str, k: int, dtype: Any, proto_type: int) -> str:
    """Write the calibration of class ``k``; replaces a function of skl2onnx, whose arguments it has."""
    calibrator = model.calibrators[k]
    starts, inverse, rises = interpolation(calibrator.X_thresholds_, calibrator.y_thresholds_)
    names = [scope.get_unique_variable_name(f"isotonic_{number}") for number in range(10)]
    arrays = {
        names[0]: np.array([-1, 1], np.int64), names[1]: starts, names[2]: inverse, names[3]: np.float32(0),
        names[4]: np.float32(1), names[5]: rises[:, None],
        names[6]: calibrator.y_thresholds_[:1].astype(np.float32),
    }  # fmt: skip
    for name, array in arrays.items():
        kind = 7 if array.dtype == np.int64 else 1  # of TensorProto
        container.add_initializer(name, kind, list(np.shape(array)), np.ravel(array).tolist())
    steps = [
        ("Reshape", names[0]), ("Sub", names[1]), ("Mul", names[2]), ("Clip", names[3], names[4]),
        ("MatMul", names[5]), ("Add", names[6]),
    ]  # fmt: skip
    for operator, *operands in steps:
        output = scope.get_unique_variable_name(f"isotonic_{operator}")
        container.add_node(operator, [x, *operands], [output], name=scope.get_unique_operator_name(operator))
        x = output
    return x


def repair_distances(proto: Any) -> None:
    """Remove the minus sign of distances that weight neighbours, in place.

    TopK<largest=0> -> Mul(-1) -> Max(1e-6) -> Reciprocal    =>    TopK<largest=0> -> Max(1e-6) -> Reciprocal
    """
    producers = {output: node for node in proto.graph.node for output in node.output}
    for node in proto.graph.node:
        product = producers.get(node.input[0]) if node.op_type == "Max" else None
        nearest = (
            producers.get(product.input[0]) if product is not None and product.op_type == "Mul" else None
        )
        if product is None or nearest is None or nearest.op_type != "TopK":
            continue
        if any(attribute.name == "largest" and attribute.i == 0 for attribute in nearest.attribute):
            node.input[0] = product.input[0]

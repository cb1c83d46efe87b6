"""scikit-learn: fitted estimators and pipelines from Python, and trusted pickles (``.pkl``, ``.joblib``), by
skl2onnx. Checked with scikit-learn 1.9 and skl2onnx 1.20.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.importers.child_process import convert_file
from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.compiler.importers.file_kinds import PLAIN_PICKLE, file_kind
from edgekit.compiler.importers.original import Original, Samples, convert_object, serialized
from edgekit.errors import MissingDependency, ModelError
from edgekit.tensor_spec import Array

INSTALL = "pip install scikit-learn skl2onnx"
OPSETS = {"": 18, "ai.onnx.ml": 3}
"""Of the ONNX model. IsolationForest has no converter for newer ones of the second."""


def recognize(head: bytes, path: Path) -> bool:
    """Return whether the file is a pickle of scikit-learn's, or a plain one without classes of torch."""
    kind = file_kind(head, path)
    return kind.kind == PLAIN_PICKLE and (kind.has("sklearn") or not kind.has("torch"))


def recognize_object(model: object) -> bool:
    return any(
        cls.__name__ == "BaseEstimator" and cls.__module__ == "sklearn.base" for cls in type(model).__mro__
    )


def to_onnx(source: Any, options: ImportOptions) -> Converted:
    """Export a pickle in a child process, an estimator in this one."""
    if not isinstance(source, Path):
        return convert_object(partial(_original, source), type(source).__name__)
    with source.open("rb") as file:
        kind = file_kind(file.read(16), source)
    whose = " of scikit-learn" if kind.has("sklearn") else ""
    instead = "pass the fitted estimator itself to edgekit.build, or an .onnx file from skl2onnx"
    options.need_trust(source, f"a Python pickle{whose}", instead)
    return convert_file(__name__, source, options)


def load(path: Path, options: ImportOptions) -> Original:
    """Load the estimator of a pickle in the child process.

    Raises:
        ModelError: it holds something else.
        MissingDependency: scikit-learn is not installed.
    """
    if find_spec("sklearn") is None:
        raise MissingDependency("scikit-learn", "importing its models", INSTALL)
    import joblib

    found = joblib.load(path)
    if not recognize_object(found):
        kind = f"{type(found).__module__}.{type(found).__name__}"
        raise ModelError(f"{path.name} contains a {kind}, which is not a scikit-learn estimator")
    return _original(found)


def _original(model: Any) -> Original:
    if find_spec("skl2onnx") is None:
        raise MissingDependency("skl2onnx", "exporting scikit-learn's models", "pip install skl2onnx")
    model = getattr(model, "best_estimator_", model)
    ranks: list[int] = []

    def export() -> Converted:
        from edgekit.compiler.model.onnx_file import (
            open_bytes,
            signature,
        )  # here: importers are asked about every file

        made = _export(model)
        ranks[:] = [len(spec.shape) for spec in signature(open_bytes(made.onnx, type(model).__name__))[1]]
        return made

    def run(samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
        import sklearn

        if not ranks:
            export()
        rows = []
        for sample in samples:
            (x,) = (sample[name] for name in inputs)
            found = [
                array.reshape((len(x), -1) if rank > 1 else -1)
                for array, rank in zip(_answers(model, x, len(outputs)), ranks, strict=True)
            ]
            rows.append(dict(zip(outputs, found, strict=True)))
        return FrameworkOutputs(f"scikit-learn {sklearn.__version__}", rows)

    return Original(export, run, "skl2onnx")


def _export(model: Any) -> Converted:
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise ModelError(f"{type(model).__name__} is not fitted: fit it first")
    names = _class_names(_final(model))
    if not names:
        return Converted(serialized(_converted(model, int(count))))
    numbered = copy.deepcopy(model)
    _final(numbered).classes_ = np.arange(len(names))
    notes = (f"label is an index into the classes {', '.join(names)}",)
    return Converted(serialized(_converted(numbered, int(count))), notes)


def _converted(model: Any, count: int) -> Any:
    """Convert with the scores as a tensor. LinearSVC lacks the option and needs another in a pipeline."""
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
    given = {id(_final(model)): options} if options and hasattr(_final(model), "classes_") else None
    return convert(model, initial_types=types, target_opset=OPSETS, options=given)


def _final(model: Any) -> Any:
    """Return the last step of a pipeline, which has the classes."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def _class_names(final: Any) -> list[str]:
    """Return the class names if they are not integers."""
    classes = getattr(final, "classes_", None)
    if classes is None or isinstance(classes, list) or classes.dtype.kind in "iub":
        return []
    return [str(each) for each in classes]


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
    for method in ("predict_proba", "decision_function", "transform"):
        if hasattr(model, method):
            return [first, np.asarray(getattr(model, method)(x), np.float32)]
    raise ModelError(f"{type(final).__name__} has two outputs, and the meaning of the second is unknown")


IMPORTER = Importer(
    "scikit-learn",
    (".pkl", ".pickle", ".joblib"),
    recognize,
    to_onnx,
    ("scikit-learn", "skl2onnx"),
    recognize_object,
)

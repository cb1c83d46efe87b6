"""Boosted trees for the scikit-learn importer: estimators of XGBoost and LightGBM, in pipelines too, their
boosters, and CatBoost's models, from Python or from the files that they save.

onnxmltools converts the first two, CatBoost writes ONNX itself. Checked with XGBoost 3.2, LightGBM 4.7,
CatBoost 1.2 and onnxmltools 1.16.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import MissingDependency, ModelError
from edgekit.tensor_spec import Array


class Library(NamedTuple):
    """Library of boosted trees.

    Attributes:
        name: Name for users.
        package: Distribution and module.
        classes: Classes of its models without scikit-learn's interface.
        head: First bytes of its files, one for each format.
        exporter: Package that converts its models to ONNX.
    """

    name: str
    package: str
    classes: tuple[str, ...]
    head: tuple[bytes, ...]
    exporter: str = "onnxmltools"


LIBRARIES = (
    Library("XGBoost", "xgboost", ("Booster",), (b'{"learner"', b"{L\0\0\0\0\0\0\0\x07learner")),
    Library("LightGBM", "lightgbm", ("Booster",), (b"tree\nversion=",)),
    Library("CatBoost", "catboost", ("CatBoost",), (b"CBM1",), "CatBoost"),
)
CONVERTER = "onnxmltools"
OPSET = 15
"""Newest that onnxmltools 1.16 writes for boosters."""
_CONVERTED = {  # module of its converter in onnxmltools, function, class -> kind
    "xgboost": ("xgboost.operator_converters.XGBoost", "convert_xgboost", "XGB"),
    "lightgbm": ("lightgbm.operator_converters.LightGbm", "convert_lightgbm", "LGBM"),
}
KINDS = ("Classifier", "Regressor", "RFClassifier", "RFRegressor", "Ranker")


def library_of_file(head: bytes) -> Library | None:
    """Return the library that wrote a file that starts like this."""
    return next((library for library in LIBRARIES if head.startswith(library.head)), None)


def library_of(model: object) -> Library | None:
    """Return the library of a model without scikit-learn's interface."""
    classes = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(model).__mro__}
    return next(
        (entry for entry in LIBRARIES if classes & {(entry.package, name) for name in entry.classes}), None
    )


def library_of_estimator(model: object) -> Library | None:
    """Return the library of an estimator with scikit-learn's interface; None: scikit-learn itself."""
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return next((entry for entry in LIBRARIES if entry.package in packages), None)


def load_boosted(path: Path, library: Library) -> Any:
    """Load the model of a file.

    Raises:
        MissingDependency: its library is not installed.
    """
    if find_spec(library.package) is None:
        packages = library.package
        if library.exporter == CONVERTER:
            packages += f" {CONVERTER} skl2onnx"
        install = f"pip install {packages}"
        raise MissingDependency(library.package, f"importing {library.name} models", install)
    if library.package == "catboost":
        import catboost

        return catboost.CatBoost().load_model(str(path))
    module = __import__(library.package)
    return module.Booster(model_file=str(path))


def register_converters(model: Any) -> None:
    """Make skl2onnx convert the estimators of XGBoost and LightGBM in a model.

    Raises:
        MissingDependency: onnxmltools is not installed.
    """
    parts = [model, *model.get_params(deep=True).values()]
    if any(type(part).__name__.startswith("HistGradientBoosting") for part in parts):
        _register_histograms()
    used = {type(part).__module__.partition(".")[0] for part in parts} & _CONVERTED.keys()
    if not used:
        return
    _need_converter()
    from importlib import import_module

    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator

    for package in used:
        module, function, prefix = _CONVERTED[package]
        converter = getattr(import_module(f"{CONVERTER}.convert.{module}"), function)
        for kind in KINDS:
            cls = getattr(sys.modules[package], f"{prefix}{kind}", None)
            if cls is None:
                continue
            classifies = "Classifier" in kind
            shapes = "classifier" if classifies else "regressor"
            update_registered_converter(
                cls, cls.__name__, getattr(shape_calculator, f"calculate_linear_{shapes}_output_shapes"),
                converter, options={"zipmap": [True, False], "nocl": [True, False]} if classifies else None,
            )  # fmt: skip


def with_plain_trees(model: Any) -> None:
    """Replace the booster of an estimator, in place, by one that onnxmltools converts."""
    package = type(model).__module__.partition(".")[0]
    if package == "xgboost" and hasattr(model, "get_booster"):
        model._Booster = plain_trees(model.get_booster())
    elif package == "lightgbm" and hasattr(model, "booster_"):
        summed = summed_trees(model.booster_)
        if summed is not model.booster_:
            model._Booster, model.boosting_type = summed, "gbdt"


def plain_trees(booster: Any) -> Any:
    """Return a booster of XGBoost as one of plain trees: a leaf of DART is multiplied by its tree's weight.

    Raises:
        ModelError: it is a linear booster.
    """
    content = json.loads(booster.save_raw("json"))
    boosted = content["learner"]["gradient_booster"]
    if boosted["name"] == "gblinear":
        raise ModelError(
            "XGBoost: onnxmltools can't convert its linear booster (gblinear): fit it with "
            'booster="gbtree", or fit a linear model of scikit-learn'
        )
    if boosted["name"] != "dart":
        return booster
    trees = boosted["gbtree"]
    for tree, weight in zip(trees["model"]["trees"], boosted["weight_drop"], strict=True):
        pairs = zip(tree["split_conditions"], tree["left_children"], strict=True)
        tree["split_conditions"] = [value * weight if left < 0 else value for value, left in pairs]
    content["learner"]["gradient_booster"] = trees
    content["learner"].get("learner_train_param", {})["booster"] = "gbtree"
    plain = type(booster)()
    plain.load_model(bytearray(json.dumps(content).encode()))
    return plain


def summed_trees(booster: Any) -> Any:
    """Return a booster of LightGBM whose trees are summed. Those of its random forests are averaged, which
    onnxmltools 1.16 leaves out for boosters; for estimators it always divides by 100."""
    lines = booster.model_to_string().splitlines()
    if "average_output" not in lines:
        return booster
    rounds = booster.num_trees() // booster.num_model_per_iteration()
    new_lines = [line for line in lines if line != "average_output" and not line.startswith("tree_sizes=")]
    for number, line in enumerate(new_lines):
        if line.startswith("leaf_value="):
            leaves = map(float, line.removeprefix("leaf_value=").split())
            new_lines[number] = "leaf_value=" + " ".join(repr(leaf / rounds) for leaf in leaves)
    return type(booster)(model_str="\n".join([*new_lines, ""]))


def _register_histograms() -> None:
    """Mend skl2onnx 1.20's converters of histogram-based boosting: they write booleans for integers."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common._registration import get_converter, get_shape_calculator
    from sklearn import ensemble

    for kind in ("Classifier", "Regressor"):
        cls = getattr(ensemble, f"HistGradientBoosting{kind}")
        alias = f"Sklearn{cls.__name__}"
        converter = get_converter(alias)
        if converter.__module__ != __name__:  # not done yet
            converter = _integer_attributes(converter)
        options = {"zipmap": [True, False, "columns"], "raw_scores": [True, False], "nocl": [True, False]}
        shapes = get_shape_calculator(alias)
        update_registered_converter(
            cls, alias, shapes, converter, options=options if kind == "Classifier" else None
        )


def _integer_attributes(convert: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    def converter(scope: Any, operator: Any, container: Any) -> None:
        convert(scope, operator, _IntegerAttributes(container))

    return converter


class _IntegerAttributes:
    """Container of skl2onnx's in which booleans in lists of attributes are integers."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, *arguments: Any, **attributes: Any) -> None:
        for name, values in attributes.items():
            if isinstance(values, list) and any(isinstance(value, bool | np.bool_) for value in values):
                attributes[name] = [int(value) for value in values]
        self._container.add_node(*arguments, **attributes)


def feature_count(model: Any) -> int:
    """Return the number of columns of a model's input."""
    for name in ("num_features", "num_feature"):
        if hasattr(model, name):
            return int(getattr(model, name)())
    return len(model.feature_names_)


def converted_boosted(model: Any, library: Library) -> tuple[Any, tuple[str, ...]]:
    """Convert a booster, or CatBoost's model.

    Returns:
        The ``onnx.ModelProto`` and notes.
    """
    if library.package == "catboost":
        return _catboost(model)
    _need_converter()
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    model = plain_trees(model) if library.package == "xgboost" else summed_trees(model)
    convert = onnxmltools.convert_xgboost if library.package == "xgboost" else onnxmltools.convert_lightgbm
    types = [("X", FloatTensorType([None, feature_count(model)]))]
    more = {} if library.package == "xgboost" else {"zipmap": False}
    return convert(model, initial_types=types, target_opset=OPSET, **more), ()


def boosted_answers(model: Any, library: Library, x: Array, count: int) -> list[Array]:
    """Compute the outputs that the converted model has: predictions, or labels and probabilities."""
    if library.package == "catboost":
        if count == 1:
            return [np.asarray(model.predict(x, prediction_type="RawFormulaVal"), np.float32)]
        scores = np.asarray(model.predict(x, prediction_type="Probability"), np.float32)
    else:
        data = sys.modules["xgboost"].DMatrix(x) if library.package == "xgboost" else x
        scores = np.asarray(model.predict(data), np.float32)
        if count == 1:
            return [scores]
        scores = np.stack([1 - scores, scores], axis=1) if scores.ndim == 1 else scores
    return [scores.argmax(axis=1), scores]


def _catboost(model: Any) -> tuple[Any, tuple[str, ...]]:
    """Let CatBoost write ONNX. Names of classes become their index."""
    import onnx

    with TemporaryDirectory(prefix="edgekit-catboost-") as folder:
        path = Path(folder, "model.onnx")
        model.save_model(str(path), format="onnx")
        proto = onnx.load(path)
    node = proto.graph.node[0]
    attributes = {attribute.name: attribute for attribute in node.attribute}
    labels = attributes.get("classlabels_strings")
    if labels is None:
        return proto, ()
    names = [name.decode("utf-8", "replace") for name in labels.strings]
    node.attribute.remove(labels)
    node.attribute.append(onnx.helper.make_attribute("classlabels_int64s", list(range(len(names)))))
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return proto, (index_note(names),)


def index_note(names: Sequence[str]) -> str:
    """Return the note on a label that is an index."""
    return f"label is an index into the classes {', '.join(names)}"


def _need_converter() -> None:
    if find_spec(CONVERTER) is None:
        raise MissingDependency(
            CONVERTER, "importing XGBoost and LightGBM models", "pip install onnxmltools skl2onnx"
        )

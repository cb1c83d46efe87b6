"""Boosted trees for the scikit-learn importer: estimators of XGBoost and LightGBM, in pipelines too, their
boosters, and CatBoost's models, from Python or from the files that they save.

onnxmltools converts the first two, CatBoost writes ONNX itself. Checked with XGBoost 3.2, LightGBM 4.7,
CatBoost 1.2 and onnxmltools 1.16.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.importers.float32_trees import Columns, column_nodes, float32_model, missing_branches
from edgekit.errors import MissingDependency
from edgekit.tensor_spec import Array


class Library(NamedTuple):
    """Library of boosted trees.

    Attributes:
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
_TREES = tuple(
    f"{family}{kind}"
    for family in ("DecisionTree", "ExtraTree", "ExtraTrees", "RandomForest", "HistGradientBoosting")
    for kind in ("Classifier", "Regressor")
)
"""scikit-learn's trees whose converters are mended."""
KINDS = ("Classifier", "Regressor", "RFClassifier", "RFRegressor", "Ranker")


def library_of_file(head: bytes) -> Library | None:
    return next((library for library in LIBRARIES if head.startswith(library.head)), None)


def library_of(model: object) -> Library | None:
    classes = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(model).__mro__}
    return next(
        (entry for entry in LIBRARIES if classes & {(entry.package, name) for name in entry.classes}), None
    )


def library_of_estimator(model: object) -> Library | None:
    """Return the library of an estimator with scikit-learn's interface. None means scikit-learn itself."""
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return next((entry for entry in LIBRARIES if entry.package in packages), None)


def load_boosted(path: Path, library: Library) -> Any:
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
    """Make skl2onnx convert the estimators of XGBoost and LightGBM in a model, and trees as they compare."""
    from skl2onnx.common._registration import get_converter, register_converter

    for alias in _TREES:
        converter = get_converter(f"Sklearn{alias}")
        if converter._fct.__module__ != __name__:  # not done yet
            exact, options = _exact(converter), converter.get_allowed_options()
            register_converter(f"Sklearn{alias}", exact, overwrite=True, options=options)
    parts = [model, *model.get_params(deep=True).values()]
    used = {type(part).__module__.partition(".")[0] for part in parts} & _CONVERTED.keys()
    if not used:
        return
    _need_converter()
    from importlib import import_module

    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator

    for package in used:
        module, function, prefix = _CONVERTED[package]
        converter = _exact(getattr(import_module(f"{CONVERTER}.convert.{module}"), function))
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


def _exact(convert: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """Return a converter of trees that float32 rows descend as in the library (float32_trees.py)."""

    def converter(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator
        operator.raw_operator, columns = float32_model(model)
        try:
            convert(scope, operator, _TreeContainer(container, model, columns))
        finally:
            operator.raw_operator = model

    return converter


class _TreeContainer:
    """Container of skl2onnx's for one model of trees. Booleans in lists of attributes become integers, and
    branches of missing values and changed columns are added."""

    def __init__(self, container: Any, model: Any, columns: Columns) -> None:
        self._container, self._model, self._columns = container, model, columns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, op_type: str, inputs: Any, *arguments: Any, **attributes: Any) -> None:
        for name, values in attributes.items():
            if isinstance(values, list) and any(isinstance(value, bool | np.bool_) for value in values):
                attributes[name] = [int(value) for value in values]
        if op_type.startswith("TreeEnsemble"):
            inputs = self._changed_columns(inputs[0] if isinstance(inputs, list) else inputs)
            ids = attributes["nodes_treeids"], attributes["nodes_nodeids"]
            if (left := missing_branches(self._model, *ids)) is not None:
                attributes["nodes_missing_value_tracks_true"] = left
        self._container.add_node(op_type, inputs, *arguments, **attributes)

    def _changed_columns(self, x: str) -> list[str]:
        import onnx

        nodes, weights = column_nodes(x, self._columns, truncates_categories(self._model))
        for name, array in weights.items():
            dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            self._container.add_initializer(name, dtype, array.shape, array.ravel().tolist())
        for operator, inputs, output in nodes:
            self._container.add_node(operator, inputs, [output], name=output)
        return [nodes[-1][-1] if nodes else x]


def truncates_categories(model: Any) -> bool:
    """Return whether -0.5 is category 0, as in LightGBM. In XGBoost it is not a category."""
    return type(model).__module__.startswith("lightgbm")


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
    import onnx
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    model, columns = float32_model(model)
    convert = onnxmltools.convert_xgboost if library.package == "xgboost" else onnxmltools.convert_lightgbm
    types = [("X", FloatTensorType([None, feature_count(model)]))]
    more = {} if library.package == "xgboost" else {"zipmap": False}
    proto = convert(model, initial_types=types, target_opset=OPSET, **more)
    nodes, weights = column_nodes("X", columns, truncates_categories(model))
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(weights[name], name) for name in weights)
    for node in proto.graph.node if nodes else ():
        node.input[:] = [nodes[-1][-1] if name == "X" else name for name in node.input]
    for number, (operator, inputs, output) in enumerate(nodes):
        proto.graph.node.insert(number, onnx.helper.make_node(operator, inputs, [output]))
    if nodes:
        contributed = [entry for entry in proto.opset_import if entry.domain]
        del proto.opset_import[:]
        proto.opset_import.extend([*contributed, onnx.helper.make_opsetid("", OPSET)])
    return proto, ()


def boosted_answers(model: Any, library: Library, x: Array, count: int) -> list[Array]:
    """Compute the outputs that the converted model has: predictions, or labels and probabilities."""
    if library.package == "catboost":
        if count == 1:
            return [np.asarray(model.predict(x, prediction_type="RawFormulaVal"), np.float32)]
        scores = np.asarray(model.predict(x, prediction_type="Probability"), np.float32)
    else:
        data = _matrix(model, x) if library.package == "xgboost" else x
        scores = np.asarray(model.predict(data), np.float32)
        if count == 1:
            return [scores]
        scores = np.stack([1 - scores, scores], axis=1) if scores.ndim == 1 else scores
    return [scores.argmax(axis=1), scores]


def _matrix(model: Any, x: Array) -> Any:
    names, types = model.feature_names, model.feature_types
    categories = types is not None and "c" in types
    return sys.modules["xgboost"].DMatrix(
        x, feature_names=names, feature_types=types, enable_categorical=categories
    )


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

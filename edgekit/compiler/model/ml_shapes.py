"""Types and shapes of the ops of ai.onnx.ml, ONNX's domain of scikit-learn's models, and their checks.

ONNX infers half of them, and some only in part. The shapes are those of ONNX Runtime's kernels, which are the
only implementation. What their attributes count is checked against the input: the kernels index memory by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import int_of, text_of
from edgekit.compiler.model.tree_ensembles import MalformedTrees, read_tree_ensemble, read_trees
from edgekit.errors import ModelError

ML_DOMAIN = "ai.onnx.ml"
"""ONNX's second domain (trees, scalers) with its own versions; a model may consist of it only."""

FLOAT, INT64, STRING = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.STRING

Dims = tuple[int, ...]
Outputs = list[tuple[ir.DataType, Dims]]


def infer_ml_shapes(node: ir.Node) -> tuple[bool, str | None]:
    """Set type and shape of the node's outputs.

    Returns:
        Whether the op and the shape of its input are known, and what is wrong with the node.
    """
    rule = _RULES.get(node.op_type) if node.domain == ML_DOMAIN else None
    x = node.inputs[0] if node.inputs else None
    dims = static_dims(x)
    if rule is None or x is None or x.dtype is None or dims is None:
        return False, None
    if not dims:
        return True, "its input is a scalar; it must be rows of features"
    try:
        outputs = rule(node, x.dtype, dims)
    except MalformedTrees as problem:
        return True, str(problem)
    if isinstance(outputs, str):
        return True, outputs
    for value, (dtype, shape) in zip(node.outputs, outputs, strict=False):
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
    return True, None


def length(node: ir.Node, name: str) -> int:
    """Return the number of entries of a list attribute; 0 if it is absent."""
    attribute = node.attributes.get(name)
    return len(attribute.value) if attribute is not None else 0


def class_labels(node: ir.Node) -> tuple[ir.DataType, int]:
    for name, dtype in (
        ("classlabels_strings", STRING),
        ("classlabels_ints", INT64),
        ("classlabels_int64s", INT64),
    ):
        if count := length(node, name):
            return dtype, count
    return INT64, 0


def _rows(dims: Dims) -> Dims:
    return (1,) if len(dims) == 1 else dims[:1]


def _per_column(node: ir.Node, name: str, dims: Dims) -> str | None:
    count = length(node, name)
    if count not in (0, 1, dims[-1]):
        return f"{name} has {count} entries but its input has {dims[-1]} columns"
    return None


def _other_length(node: ir.Node, sizes: dict[str, int]) -> str | None:
    for name, expected in sizes.items():
        if length(node, name) != expected:
            return f"{name} has {length(node, name)} entries; its other attributes require {expected}"
    return None


def _same(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    return [(dtype, dims)]


def _scaler(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    problem = _per_column(node, "offset", dims) or _per_column(node, "scale", dims)
    return problem or [(FLOAT, dims)]


def _imputer(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    names = ("imputed_value_floats", "imputed_value_int64s")
    problem = _per_column(node, names[0], dims) or _per_column(node, names[1], dims)
    return problem or [(dtype, dims)]


def _normalizer(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    return [(FLOAT, dims)]


def _array_feature_extractor(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    read = static_dims(node.inputs[1])
    if read is None:
        return []
    return [(dtype, (*((1,) if len(dims) == 1 else dims[:-1]), math.prod(read)))]


def _label_encoder(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    kinds = {"values_int64s": INT64, "values_floats": FLOAT, "values_strings": STRING}
    for name, kind in kinds.items():
        if count := length(node, name):
            keys = sum(length(node, key) for key in ("keys_int64s", "keys_floats", "keys_strings"))
            if keys != count:
                return f"{name} has {count} entries but there are {keys} keys"
            return [(kind, dims)]
    return []


def _linear_classifier(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    kind, labels = class_labels(node)
    targets, coefficients = length(node, "intercepts"), length(node, "coefficients")
    if not targets or coefficients != targets * dims[-1]:
        return (
            f"coefficients has {coefficients} entries; {targets} intercepts and {dims[-1]} columns "
            f"need {targets * dims[-1]}"
        )
    if labels != (2 if targets == 1 else targets):
        return f"has {labels} labels for {targets} intercepts"
    return [(kind, _rows(dims)), (FLOAT, (*_rows(dims), labels))]


def _linear_regressor(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    targets = int_of(node, "targets", 1)
    coefficients = length(node, "coefficients")
    if targets < 1 or coefficients != targets * dims[-1]:
        return f"coefficients has {coefficients} entries; {targets} targets need {targets * dims[-1]}"
    if length(node, "intercepts") not in (0, targets):
        return f"intercepts has {length(node, 'intercepts')} entries for {targets} targets"
    return [(FLOAT, (*_rows(dims), targets))]


def _svm_classifier(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    kind, labels = class_labels(node)
    vectors = sum(node.attributes["vectors_per_class"].as_ints()) if length(node, "vectors_per_class") else 0
    pairs = labels * (labels - 1) // 2
    if not vectors:
        if length(node, "coefficients") != labels * dims[-1]:
            return f"coefficients has {length(node, 'coefficients')} entries for {labels} labels"
        return [(kind, _rows(dims)), (FLOAT, (*_rows(dims), labels))]
    if length(node, "vectors_per_class") != labels:
        return f"vectors_per_class has {length(node, 'vectors_per_class')} entries for {labels} labels"
    if min(node.attributes["vectors_per_class"].as_ints()) < 0:
        return "vectors_per_class has a negative entry"
    sizes = {
        "support_vectors": vectors * dims[-1],
        "coefficients": vectors * (labels - 1),
        "rho": pairs,
    }
    probable = length(node, "prob_a")
    if probable:
        sizes |= {"prob_a": pairs, "prob_b": pairs}
    if problem := _other_length(node, sizes):
        return problem
    return [(kind, _rows(dims)), (FLOAT, (*_rows(dims), labels if probable or labels == 2 else pairs))]


def _svm_regressor(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    vectors = int_of(node, "n_supports", 0)
    sizes = {"support_vectors": vectors * dims[-1], "coefficients": vectors or dims[-1], "rho": 1}
    if problem := _other_length(node, sizes):
        return problem
    return [(FLOAT, (*_rows(dims), 1))]


def _tree_classifier(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    kind, labels = class_labels(node)
    if not labels:
        return "has no class labels"
    read_trees(node, "class", labels, dims[-1])
    if length(node, "base_values") > labels:
        return f"base_values has {length(node, 'base_values')} entries for {labels} labels"
    return [(kind, _rows(dims)), (FLOAT, (*_rows(dims), labels))]


def _tree_regressor(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    targets = int_of(node, "n_targets", 1)
    if targets < 1:
        return f"n_targets is {targets}"
    read_trees(node, "target", targets, dims[-1])
    if length(node, "base_values") not in (0, targets):
        return f"base_values has {length(node, 'base_values')} entries for {targets} targets"
    return [(FLOAT, (*_rows(dims), targets))]


def _tree_ensemble(node: ir.Node, dtype: ir.DataType, dims: Dims) -> Outputs | str:
    targets = int_of(node, "n_targets", 1)
    if targets < 1:
        return f"n_targets is {targets}"
    read_tree_ensemble(node, targets, dims[-1])
    return [(dtype, (*_rows(dims), targets))]


_RULES: dict[str, Callable[[ir.Node, ir.DataType, Dims], Outputs | str]] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _same,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _scaler,
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
}


def restate_normalizers(model: ir.Model) -> None:
    """Normalizer<norm = "L2">(x) [ai.onnx.ml]  =>  LpNormalization<p = 2, axis = -1>(x)

    ONNX Runtime's kernel may write over its own input, and then loses the signs of the numbers (1.31.1). It
    does so if shapes are known, so that EdgeKit's reference and its variants would be wrong by it, while
    the source file is right. Shapes must be inferred. Inputs of another type can't be written over.
    """
    for node in model.graph:
        if node.domain != ML_DOMAIN or node.op_type != "Normalizer" or text_of(node, "norm", "MAX") != "L2":
            continue
        if node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.FLOAT:
            node.domain, node.op_type = "", "LpNormalization"
            node.attributes.clear()
            node.attributes.add(ir.AttrInt64("p", 2))
            node.attributes.add(ir.AttrInt64("axis", -1))


def drop_dictionaries(proto: onnx.ModelProto) -> None:
    """ZipMap(scores) -> output [ai.onnx.ml]  =>  Identity(scores) -> output

    ZipMap returns each row's scores as a dictionary by class, which engines do not support. skl2onnx adds it
    to classifiers by default, CatBoost always. The tensor has a column for each class, in the same order.

    Raises:
        ModelError: a node reads the dictionaries.
    """
    outputs = {value.name: value for value in proto.graph.output}
    read = {name for node in proto.graph.node for name in node.input}
    for node in proto.graph.node:
        if node.op_type != "ZipMap" or node.domain != ML_DOMAIN:
            continue
        name = next(iter(node.output), "")
        if name not in outputs or name in read:
            raise ModelError(
                f"output {name}: node {node.name or 'ZipMap'} (ZipMap) returns each row's scores as a "
                "dictionary that other nodes read, which engines do not support; export again with "
                'skl2onnx\'s options={"zipmap": False} to get a tensor'
            )
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        outputs[name].type.Clear()
        outputs[name].type.tensor_type.elem_type = onnx.TensorProto.FLOAT


def output_advice(value: ir.Value) -> str:
    """Return advice on an output that is not a numeric tensor, or "" if there is none."""
    if value.dtype == ir.DataType.STRING:
        return (
            "class names are strings, which engines do not support: train on integers "
            "(sklearn.preprocessing.LabelEncoder), and put the names into the card's labels"
        )
    return ""

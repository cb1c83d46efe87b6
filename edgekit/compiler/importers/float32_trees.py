"""Fitted trees, changed such that float32 comparisons take every branch that the library takes.

LightGBM and scikit-learn compare float32 columns with double thresholds. The float32 nearest to a threshold
may be above it, and a column of that value then takes the other branch. The next lower one is exact:

    x <= t    <=>    x <= the largest float32 that is not above t

XGBoost (x < t) and CatBoost (x > t) have float32 thresholds. Rules that ONNX does not have become columns:
LightGBM's zeros as missing values, and the truncation of categories to integers.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

ZERO = np.float32(1e-35)
"""LightGBM's kZeroThreshold: no larger magnitude counts as zero."""
CATEGORICAL, LEFT, MISSING_NAN = 1, 2, 8
"""Bits of LightGBM's decision_type. Bits 2 and 3 are the kind of missing values: 0 none, 1 zero, 2 NaN."""


class Columns(NamedTuple):
    """Columns that are changed before the trees read them.

    Attributes:
        zeros: Columns in which zero is a missing value.
        categories: Columns of categories, which are truncated to integers.
        width: Number of all columns.
    """

    zeros: frozenset[int] = frozenset()
    categories: frozenset[int] = frozenset()
    width: int = 0

    def __bool__(self) -> bool:
        return bool(self.zeros or self.categories)

    def mask(self, columns: frozenset[int]) -> Array:
        """Return whether each column is one of these, bool[1, columns]."""
        return np.isin(np.arange(self.width), sorted(columns))[None]


def floor_float32(thresholds: Array) -> Array:
    """Return the largest float32 that is not above each threshold, as float64.

    >>> floor_float32(np.array([0.1, 0.25, 1e300])).tolist()
    [0.09999999403953552, 0.25, 3.4028234663852886e+38]
    """
    with np.errstate(over="ignore"):
        nearest = thresholds.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > thresholds, below, nearest).astype(np.float64)


def float32_model(model: Any) -> tuple[Any, Columns]:
    """Return a copy of an estimator or booster whose trees ONNX can express, and the columns to change."""
    package = type(model).__module__.partition(".")[0]
    if package in ("lightgbm", "xgboost"):
        convert = lightgbm_booster if package == "lightgbm" else xgboost_booster
        if not hasattr(model, "_Booster"):
            return convert(model)
        plain = copy.copy(model)
        plain._Booster, columns = convert(model._Booster)
        if package == "lightgbm" and plain.boosting_type == "rf":
            plain.boosting_type = "gbdt"  # its trees are summed now
        return plain, columns
    if hasattr(model, "_predictors"):
        return histogram_model(model), Columns()
    return model, Columns()


def lightgbm_booster(booster: Any) -> tuple[Any, Columns]:
    """Round the thresholds of a booster of LightGBM, and write its rules for missing values as one that ONNX
    has: without missing values in training, NaN is zero."""
    lines = _summed_trees(booster.model_to_string().splitlines(), booster)
    zeros, categories = set[int](), set[int]()
    places: dict[str, int] = {}
    for number, line in enumerate(lines):
        name = line.partition("=")[0]
        places[name] = number
        if name != "decision_type":
            continue
        features, thresholds, types = (
            np.array(lines[places[key]].partition("=")[2].split(), dtype)
            for key, dtype in (("split_feature", int), ("threshold", float), ("decision_type", int))
        )
        numeric, missing = types & CATEGORICAL == 0, types >> 2 & 3
        thresholds = np.where(numeric, _beyond_zero(floor_float32(thresholds)), thresholds)
        left = np.where(missing == 0, np.where(thresholds >= 0, LEFT, 0), types & LEFT)
        types = np.where(numeric, MISSING_NAN | left, types)
        zeros |= set(features[numeric & (missing == 1)].tolist())
        categories |= set(features[~numeric].tolist())
        lines[places["threshold"]] = "threshold=" + " ".join(map(repr, thresholds.tolist()))
        lines[number] = "decision_type=" + " ".join(map(str, types.tolist()))
    lines = [line for line in lines if not line.startswith("tree_sizes=")]
    columns = Columns(frozenset(zeros), frozenset(categories), int(booster.num_feature()))
    return type(booster)(model_str="\n".join([*lines, ""])), columns


def _beyond_zero(thresholds: Array) -> Array:
    """Move thresholds out of the range that LightGBM reads as zero, to the end on their side of zero."""
    below = np.nextafter(-ZERO, np.float32(-np.inf))
    negative = np.where((thresholds < 0) & (thresholds >= -ZERO), below, thresholds)
    return np.where((negative >= 0) & (negative < ZERO), ZERO, negative)


def _summed_trees(lines: Sequence[str], booster: Any) -> list[str]:
    """Return the model of a booster with trees that are summed. Those of random forests are averaged, which
    onnxmltools 1.16 leaves out for boosters; for estimators it always divides by 100."""
    if "average_output" not in lines:
        return list(lines)
    rounds = booster.num_trees() // booster.num_model_per_iteration()
    summed = [line for line in lines if line != "average_output"]
    for number, line in enumerate(summed):
        if line.startswith("leaf_value="):
            leaves = map(float, line.removeprefix("leaf_value=").split())
            summed[number] = "leaf_value=" + " ".join(repr(leaf / rounds) for leaf in leaves)
    return summed


def xgboost_booster(booster: Any) -> tuple[Any, Columns]:
    """Return a booster of XGBoost as one of plain trees: a leaf of DART is multiplied by its tree's weight.
    Columns have neither names, in which onnxmltools looks for numbers, nor integer types, whose thresholds
    XGBoost prints rounded.

    Raises:
        ModelError: it is a linear booster.
    """
    content = json.loads(booster.save_raw("json"))
    learner = content["learner"]
    boosted = learner["gradient_booster"]
    if boosted["name"] == "gblinear":
        raise ModelError(
            "XGBoost: onnxmltools can't convert its linear booster (gblinear): fit it with "
            'booster="gbtree", or fit a linear model of scikit-learn'
        )
    if boosted["name"] == "dart":
        weights, boosted = boosted["weight_drop"], boosted["gbtree"]
        for tree, weight in zip(boosted["model"]["trees"], weights, strict=True):
            pairs = zip(tree["split_conditions"], tree["left_children"], strict=True)
            tree["split_conditions"] = [value * weight if left < 0 else value for value, left in pairs]
        learner["gradient_booster"] = boosted
        learner.get("learner_train_param", {})["booster"] = "gbtree"
    categories = {
        column
        for tree in boosted["model"]["trees"]
        for column, kind, left in zip(
            tree["split_indices"], tree["split_type"], tree["left_children"], strict=True
        )
        if kind == 1 and left >= 0
    }
    types = learner.get("feature_types", [])
    learner["feature_types"] = ["c" if kind == "c" else "float" for kind in types]
    learner["feature_names"] = [f"f{number}" for number in range(len(types))]
    plain = type(booster)()
    plain.load_model(bytearray(json.dumps(content).encode()))
    return plain, Columns(
        frozenset(), frozenset(categories), int(learner["learner_model_param"]["num_feature"])
    )


def histogram_model(model: Any) -> Any:
    """Return a copy of scikit-learn's histogram-based boosting with rounded thresholds.

    Raises:
        ModelError: it has categories, which skl2onnx leaves out.
    """
    plain = copy.copy(model)
    plain._predictors = copy.deepcopy(model._predictors)
    for predictor in (predictor for trees in plain._predictors for predictor in trees):
        nodes = predictor.nodes
        if nodes["is_categorical"].any():
            raise ModelError(
                f"{type(model).__name__}: skl2onnx leaves its categorical_features out: encode them with "
                "OneHotEncoder before it, or fit LightGBM or XGBoost, whose categories are built"
            )
        nodes["num_threshold"] = floor_float32(nodes["num_threshold"])
    return plain


def missing_branches(model: Any, tree_ids: Sequence[int], node_ids: Sequence[int]) -> list[int] | None:
    """Return whether each node of scikit-learn's trees sends a NaN to its left, which skl2onnx 1.20 leaves
    out. None means that the model has no such trees."""
    trees: list[Any] = [getattr(part, "tree_", None) for part in getattr(model, "estimators_", [model])]
    if not all(hasattr(tree, "missing_go_to_left") for tree in trees) or len(node_ids) != sum(
        tree.node_count for tree in trees if tree is not None
    ):
        return None
    return [int(trees[tree].missing_go_to_left[node]) for tree, node in zip(tree_ids, node_ids, strict=True)]


def column_nodes(
    x: str, columns: Columns, truncates: bool
) -> tuple[list[tuple[str, list[str], str]], dict[str, Array]]:
    """Return nodes (operator, inputs, output) that change columns of ``x``, and their weights by name.

    Args:
        x: Name of float32[rows, columns].
        truncates: Whether -0.5 is category 0, as in LightGBM. In XGBoost it is none.
    """
    nodes: list[tuple[str, list[str], str]] = []
    weights: dict[str, Array] = {}

    def add(operator: str, *inputs: str | Array) -> str:
        output = f"{x}/{operator}_{len(nodes)}"
        names = []
        for number, entry in enumerate(inputs):
            names.append(entry if isinstance(entry, str) else f"{output}/{number}")
            if not isinstance(entry, str):
                weights[names[-1]] = entry
        nodes.append((operator, names, output))
        return output

    value = x
    if columns.categories:
        whole = add("Mul", add("Sign", x), add("Floor", add("Abs", x))) if truncates else add("Floor", x)
        value = add("Where", columns.mask(columns.categories), whole, x)
    if columns.zeros:
        limits = np.where(columns.mask(columns.zeros), ZERO, np.float32(-1)).astype(np.float32)
        value = add(
            "Where", add("LessOrEqual", add("Abs", value), limits), np.array(np.nan, np.float32), value
        )
    return nodes, weights

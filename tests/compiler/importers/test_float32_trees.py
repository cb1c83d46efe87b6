"""Trees with double thresholds: float32 rows take the branch that the library takes."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgekit
from edgekit.compiler.importers.float32_trees import (
    ZERO,
    Columns,
    column_nodes,
    floor_float32,
    histogram_model,
    lightgbm_booster,
    xgboost_booster,
)
from edgekit.compiler.importers.threshold_rows import check_thresholds, threshold_rows
from edgekit.compiler.model.onnx_file import open_bytes, save_model
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array
from tests.compiler.importers.random_ensembles import draw, installed
from tests.compiler.passes.meaning import model_of
from tests.fixtures.ml_models import stumps

pytestmark = pytest.mark.needs_ort


@given(st.floats(allow_nan=False))
def test_a_rounded_threshold_keeps_every_float32_on_its_side(threshold: float) -> None:
    with np.errstate(over="ignore"):
        nearest = np.float32(threshold)
    rounded = np.float32(floor_float32(np.array([threshold]))[0])
    for x in (nearest, *(np.nextafter(nearest, np.float32(end)) for end in (-np.inf, np.inf))):
        assert (float(x) <= threshold) == (x <= rounded)


class Booster:
    """Booster of XGBoost or LightGBM, as far as its trees are rewritten."""

    def __init__(self, model_str: str = "") -> None:
        self.text = model_str

    def save_raw(self, form: str) -> bytes:
        assert form == "json"
        return self.text.encode()

    def load_model(self, content: bytearray) -> None:
        self.text = content.decode()

    def model_to_string(self) -> str:
        return self.text

    def num_trees(self) -> int:
        return 4

    def num_model_per_iteration(self) -> int:
        return 2

    def num_feature(self) -> int:
        return 4


def test_lightgbms_thresholds_and_missing_values() -> None:
    """Nodes: no missing values (NaN is zero), zero as missing, NaN as missing, a set of categories."""
    text = "Tree=0\nsplit_feature=0 1 2 3 0\nthreshold=0.1 -0.1 1e-40 0 -1e-40\ndecision_type=0 6 8 1 0\n"
    booster, columns = lightgbm_booster(Booster(text))
    lines = booster.text.splitlines()
    below, under_zero = np.nextafter(np.float32(0.1), np.float32(0)), np.nextafter(-ZERO, np.float32(-1))
    assert [np.float32(value) for value in lines[2].removeprefix("threshold=").split()] == [
        below, np.float32(-0.1), ZERO, 0, under_zero,
    ]  # fmt: skip
    assert lines[3] == "decision_type=10 10 8 1 8"
    assert columns == Columns(frozenset([1]), frozenset([3]), 4)


def test_averaged_trees_are_summed() -> None:
    text = "tree\naverage_output\ntree_sizes=9 9\n\nTree=0\nleaf_value=1 -0.5\n"
    assert lightgbm_booster(Booster(text))[0].text == "tree\n\nTree=0\nleaf_value=0.5 -0.25\n"


TREE = {
    "split_conditions": [0.5, 2.0, -4.0], "left_children": [1, -1, -1], "split_indices": [2, 0, 0],
    "split_type": [1, 0, 0],
}  # fmt: skip


def content_of(boosted: dict[str, Any]) -> str:
    learner = {
        "gradient_booster": boosted, "learner_train_param": {"booster": boosted["name"]},
        "learner_model_param": {"num_feature": "3"}, "feature_names": ["a", "b", "c"],
        "feature_types": ["int", "float", "c"],
    }  # fmt: skip
    return json.dumps({"learner": learner})


def test_the_weights_of_dart_are_in_its_leaves() -> None:
    boosted = {
        "name": "dart",
        "weight_drop": [0.25],
        "gbtree": {"name": "gbtree", "model": {"trees": [TREE]}},
    }
    plain, columns = xgboost_booster(Booster(content_of(boosted)))
    learner = json.loads(plain.text)["learner"]
    assert learner["learner_train_param"] == {"booster": "gbtree"}
    assert learner["gradient_booster"]["model"]["trees"][0]["split_conditions"] == [0.5, 0.5, -1.0]
    assert learner["feature_names"] == ["f0", "f1", "f2"]
    assert learner["feature_types"] == ["float", "float", "c"]
    assert columns == Columns(frozenset(), frozenset([2]), 3)


def test_a_linear_booster_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"^XGBoost: onnxmltools can't convert its linear booster \(gblinear\): "
    ):
        xgboost_booster(Booster(content_of({"name": "gblinear"})))


@pytest.mark.parametrize(("truncates", "whole"), [(True, [0, -1, 2]), (False, [-1, -2, 2])])
def test_columns_are_changed(truncates: bool, whole: list[float]) -> None:
    import onnx

    nodes, weights = column_nodes("x", Columns(frozenset([0]), frozenset([1]), 2), truncates)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(name, inputs, [output]) for name, inputs, output in nodes], "g",
        [onnx.helper.make_tensor_value_info("x", 1, [3, 2])],
        [onnx.helper.make_tensor_value_info(nodes[-1][-1], 1, [3, 2])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)])
    from onnx.reference import ReferenceEvaluator

    x: Array = np.array([[ZERO, -0.5], [2e-35, -1.5], [0, 2.5]], np.float32)
    evaluator: Any = ReferenceEvaluator(model)
    (changed,) = evaluator.run(None, {"x": x})
    assert np.array_equal(changed[:, 0], np.array([np.nan, 2e-35, np.nan], np.float32), equal_nan=True)
    assert changed[:, 1].tolist() == whole


ENSEMBLE = (
    "g (float[1,3] x) => (float[?,?] y) {{ y = ai.onnx.ml.TreeEnsembleRegressor <{a}, n_targets = 2> (x) }}"
)


def test_rows_reach_every_threshold_and_its_neighbours() -> None:
    model = model_of(ENSEMBLE.format(a=stumps("target", 2, 0)))
    exact, missing = threshold_rows(model)
    (node,) = model.graph
    columns, values = (node.attributes[f"nodes_{name}"].value for name in ("featureids", "values"))
    modes = node.attributes["nodes_modes"].as_strings()
    for column, value, mode in zip(columns, values, modes, strict=True):
        if mode != "LEAF":
            at = np.float32(value)
            for neighbour in (at, np.nextafter(at, np.float32(9)), np.nextafter(at, np.float32(-9))):
                assert neighbour in exact[:, column]
    assert np.isnan(missing).any()


def test_a_row_on_another_branch_is_refused() -> None:
    model = model_of(ENSEMBLE.format(a=stumps("target", 2, 0)))
    data = save_model(model)

    def right(x: Array, count: int) -> list[Array]:
        from edgekit.compiler.model.reference import Reference

        return list(Reference(open_bytes(data, "M", {"x": x.shape})).run({"x": x}).values())

    check_thresholds(data, "M", "Trees", right)
    count = len(threshold_rows(model)[0])

    def wrong(x: Array, outputs: int) -> list[Array]:
        (y,) = right(x, outputs)
        y[5] += 1
        return [y]

    with pytest.raises(
        ModelError, match=rf"^M: 1 of {count} rows at the thresholds of its trees differ from Trees"
    ):
        check_thresholds(data, "M", "Trees", wrong)


def test_categories_of_histograms_are_refused() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    x = np.random.default_rng(0).integers(0, 5, (100, 1)).astype(np.float32)
    model = ensemble.HistGradientBoostingRegressor(max_iter=2, categorical_features=[0], min_samples_leaf=1)
    with pytest.raises(
        ModelError, match=r"^HistGradientBoostingRegressor: skl2onnx leaves its categorical_feat"
    ):
        histogram_model(model.fit(x, x[:, 0] % 2))


FAMILIES = [
    "tree",
    "forest",
    "extra trees",
    "boosting",
    "histograms",
    "isolation",
    "lightgbm",
    "xgboost",
    "catboost",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_row_of_random_ensembles_is_lost(family: str) -> None:
    if family not in installed():
        pytest.skip(f"{family}: its library or converter is not installed here")
    from edgekit.compiler.model.reference import Reference

    for seed in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ensemble = draw(seed, family)
            onnx_file = edgekit.import_model(ensemble.model).imported.onnx
        source = open_bytes(onnx_file, ensemble.name).graph.inputs[0].name or ""
        model = open_bytes(onnx_file, ensemble.name, {source: ensemble.rows.shape})
        outputs = list(Reference(model).run({source: ensemble.rows}).values())
        found = outputs[-1 if hasattr(ensemble.model, "predict_proba") else 0].reshape(
            ensemble.expected.shape
        )
        error = np.abs(found - ensemble.expected).max()
        assert error <= 1e-4 * np.abs(ensemble.expected).max(), ensemble.name


@pytest.mark.parametrize("kind", ["Regressor", "Classifier"])
def test_sines_of_the_hour(kind: str) -> None:
    """Two equal sines differ by 1e-16 in double precision, and trees split between them."""
    lightgbm = pytest.importorskip("lightgbm")
    pytest.importorskip("onnxmltools")
    hours = np.arange(720)
    angles = 2 * np.pi * hours / 24
    x = np.stack([np.sin(angles), np.cos(angles)], 1)
    y = 3 * x[:, 0] + x[:, 1] * (hours % 24)
    y = np.where(y > 0, 1.0, 0.0) if kind == "Classifier" else y
    model = getattr(lightgbm, f"LGBM{kind}")(n_estimators=30, min_child_samples=5, verbose=-1).fit(x, y)
    rows = x.astype(np.float32)
    right = model.predict_proba(rows) if kind == "Classifier" else model.predict(rows)[:, None]
    imported = edgekit.import_model(model).imported
    from edgekit.compiler.model.reference import Reference

    found = list(Reference(open_bytes(imported.onnx, "M", {"X": rows.shape})).run({"X": rows}).values())[-1]
    assert np.abs(found - right).max() < 1e-4

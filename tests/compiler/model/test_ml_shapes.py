"""Shapes of scikit-learn's operators, and repairs of their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.errors import ModelError
from tests.compiler.passes.meaning import answers, model_of
from tests.fixtures.ml_models import stumps, vectors

CLASSIFIER = (
    "g (float[2,3] x) => (int64[?] label, float[?,?] scores) {{ label, scores = ai.onnx.ml.{op} <{a}> (x) }}"
)
VALUE = "g ({x} x) => ({y} y) {{ y = ai.onnx.ml.{op} <{a}> (x) }}"
LINEAR = "coefficients = {c}, intercepts = {i}, classlabels_ints = {labels}"
KERNEL = 'kernel_type = "LINEAR", kernel_params = [1.0, 0.0, 3.0]'
TREE_LABELS = "classlabels_int64s = [3, 5, 9]"


def classifier(op: str, attributes: str) -> ir.Model:
    return model_of(CLASSIFIER.format(op=op, a=attributes))


def regressor(op: str, attributes: str, x: str = "float[2,3]") -> ir.Model:
    return model_of(VALUE.format(op=op, a=attributes, x=x, y="float[?,?]"))


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LinearClassifier", LINEAR.format(c=[1.0] * 9, i=[1.0] * 3, labels=[3, 5, 9])),
        ("LinearClassifier", LINEAR.format(c=[1.0] * 3, i=[1.0], labels=[3, 5])),
        ("SVMClassifier", f"{vectors([1, 2, 1, 2])}, {KERNEL}, classlabels_ints = [3, 5, 9, 11]"),
        ("SVMClassifier", f"{vectors([1, 2])}, {KERNEL}, classlabels_ints = [3, 5]"),
        (
            "SVMClassifier",
            f"{vectors([1, 2, 1])}, {KERNEL}, prob_a = [1.0, 1.0, 1.0], prob_b = [0.0, 0.0, 0.0],"
            " classlabels_ints = [3, 5, 9]",
        ),
        ("TreeEnsembleClassifier", f"{stumps('class', 3, 0)}, {TREE_LABELS}"),
        ("TreeEnsembleClassifier", f"{stumps('class', 1, 0)}, classlabels_int64s = [3, 5]"),
    ],
)
def test_classifiers(op: str, attributes: str) -> None:
    model = classifier(op, attributes)
    label, scores = model.graph.outputs
    (got, _) = answers(model)
    assert static_dims(label) == got["label"].shape
    assert static_dims(scores) == got["scores"].shape


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("op", "attributes", "x"),
    [
        ("LinearRegressor", "coefficients = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], targets = 2", "float[4,3]"),
        ("LinearRegressor", "coefficients = [1.0, 2.0, 3.0]", "float[3]"),
        ("TreeEnsembleRegressor", f"{stumps('target', 2, 0)}, n_targets = 2", "float[4,3]"),
        (
            "SVMRegressor",
            "n_supports = 1, coefficients = [1.0], support_vectors = [1.0, 2.0], rho = [0.0], " + KERNEL,
            "float[4,2]",
        ),
        ("Normalizer", 'norm = "MAX"', "int64[2,3]"),
        ("Scaler", "offset = [1.0], scale = [2.0]", "int32[2,3]"),
        ("Imputer", "imputed_value_floats = [1.0]", "float[2,3]"),
        ("Binarizer", "threshold = 0.5", "float[2,3]"),
        ("LabelEncoder", "keys_int64s = [1], values_floats = [2.5]", "int64[2,3]"),
    ],
)
def test_values(op: str, attributes: str, x: str) -> None:
    rank = 2
    model = model_of(VALUE.format(op=op, a=attributes, x=x, y=f"float[{','.join('?' * rank)}]"))
    (got, _) = answers(model)
    assert static_dims(model.graph.outputs[0]) == got["y"].shape
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT


@pytest.mark.needs_ort
@pytest.mark.parametrize(("x", "at"), [("5", [1, 2]), ("4,5", [3]), ("2,4,5", [[0, 1, 2]])])
def test_array_feature_extractor(x: str, at: list[int]) -> None:
    text = f"g (float[{x}] x) => (float[?,?] y) {{ y = ai.onnx.ml.ArrayFeatureExtractor (x, at) }}"
    model = model_of(text.replace("?,?", "?,?,?" if x.count(",") == 2 else "?,?"), at=np.array(at))
    (got, _) = answers(model)
    assert static_dims(model.graph.outputs[0]) == got["y"].shape


@pytest.mark.parametrize(
    ("op", "attributes", "why"),
    [
        (
            "LinearClassifier",
            LINEAR.format(c=[1.0] * 8, i=[1.0] * 3, labels=[3, 5, 9]),
            "coefficients has 8 entries; 3 intercepts and 3 columns need 9",
        ),
        (
            "LinearClassifier",
            LINEAR.format(c=[1.0] * 9, i=[1.0] * 3, labels=[3, 5]),
            "has 2 labels for 3 intercepts",
        ),
        (
            "SVMClassifier",
            f"{vectors([1, 2])}, classlabels_ints = [3, 5, 9]",
            "vectors_per_class has 2 entries for 3 labels",
        ),
        (
            "SVMClassifier",
            f"{vectors([1, 2])}, classlabels_ints = [3, 5]".replace(
                "vectors_per_class = [1, 2]", "vectors_per_class = [2, 2]"
            ),
            "support_vectors has 9 entries; its other attributes require 12",
        ),
        ("TreeEnsembleClassifier", stumps("class", 3, 0), "has no class labels"),
        (
            "TreeEnsembleClassifier",
            f"{stumps('class', 4, 0)}, {TREE_LABELS}",
            "class_ids names an output that does not exist; there are 3",
        ),
        (
            "TreeEnsembleClassifier",
            f"{stumps('class', 3, 0)}, {TREE_LABELS}, base_values = [1.0, 1.0, 1.0, 1.0]",
            "base_values has 4 entries for 3 labels",
        ),
    ],
)
def test_a_classifier_whose_attributes_do_not_fit_is_refused(op: str, attributes: str, why: str) -> None:
    with pytest.raises(ModelError) as refused:
        classifier(op, attributes)
    assert str(refused.value) == f"node {op}_0 (ai.onnx.ml::{op}, opset 3): {why}"


@pytest.mark.parametrize(
    ("op", "attributes", "why"),
    [
        ("Scaler", "offset = [1.0, 2.0]", "offset has 2 entries but its input has 3 columns"),
        (
            "Imputer",
            "imputed_value_floats = [1.0, 2.0]",
            "imputed_value_floats has 2 entries but its input has 3 columns",
        ),
        ("LinearRegressor", "coefficients = [1.0]", "coefficients has 1 entries; 1 targets need 3"),
        (
            "LinearRegressor",
            "coefficients = [1.0, 2.0, 3.0], intercepts = [1.0, 2.0]",
            "intercepts has 2 entries for 1 targets",
        ),
        (
            "SVMRegressor",
            "n_supports = 2, coefficients = [1.0, 1.0], support_vectors = [1.0], rho = [0.0]",
            "support_vectors has 1 entries; its other attributes require 6",
        ),
        ("TreeEnsembleRegressor", "n_targets = 0", "n_targets is 0"),
    ],
)
def test_a_node_whose_attributes_do_not_fit_is_refused(op: str, attributes: str, why: str) -> None:
    with pytest.raises(ModelError) as refused:
        regressor(op, attributes)
    assert str(refused.value) == f"node {op}_0 (ai.onnx.ml::{op}, opset 3): {why}"


HEAD = '<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>'


def saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(f"{HEAD} {text}").SerializeToString())
    return path


@pytest.mark.needs_ort
def test_unit_vectors_keep_their_signs(tmp_path: Path) -> None:
    """ONNX Runtime 1.31.1 writes the result of Normalizer over its input, and reads the signs from there."""
    text = """g (float[1,4] x) => (float[1,4] z) {
        n = Neg (x)  y = ai.onnx.ml.Normalizer <norm = "L2"> (n)  z = Neg (y) }"""
    model = open_model(saved(tmp_path, text))
    x = np.array([[-1, 0, 1, 2]], np.float32)
    got = Reference(model).run({"x": x})["z"]
    np.testing.assert_allclose(got, x / np.sqrt(6), atol=1e-6)


@pytest.mark.needs_ort
def test_unit_vectors_of_integers_stay_as_they_are(tmp_path: Path) -> None:
    text = 'g (int64[1,3] x) => (float[1,3] y) { y = ai.onnx.ml.Normalizer <norm = "L2"> (x) }'
    model = open_model(saved(tmp_path, text))
    assert [node.op_type for node in model.graph] == ["Normalizer"]
    got = Reference(model).run({"x": np.array([[-2, 0, 1]])})["y"]
    np.testing.assert_allclose(got, [[-2 / np.sqrt(5), 0, 1 / np.sqrt(5)]], atol=1e-6)


@pytest.mark.needs_ort
def test_dictionaries_of_scores_become_a_tensor(tmp_path: Path) -> None:
    text = """g (float[2,2] x) => (seq(map(int64, float)) scores) {
        scores = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x) }"""
    model = open_model(saved(tmp_path, text))
    x = np.array([[0.25, 0.75], [1, 0]], np.float32)
    assert str(signature(model)[1][0]) == "scores float32 2x2"
    np.testing.assert_array_equal(Reference(model).run({"x": x})["scores"], x)


def test_dictionaries_that_are_read_are_refused(tmp_path: Path) -> None:
    text = """g (float[1,2] x) => (float y) { scores = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x)
        y = SequenceLength (scores) }"""
    with pytest.raises(ModelError) as refused:
        open_model(saved(tmp_path, text))
    assert str(refused.value) == (
        "model.onnx: output scores: node ZipMap (ZipMap) returns each row's scores as a dictionary that "
        "other nodes read, which engines do not support; export again with skl2onnx's options="
        '{"zipmap": False} to get a tensor'
    )


def test_names_of_classes_are_refused(tmp_path: Path) -> None:
    text = """g (int64[1] x) => (string[1] label) {
        label = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["cat", "dog"]> (x) }"""
    with pytest.raises(ModelError) as refused:
        open_model(saved(tmp_path, text))
    assert str(refused.value) == (
        "model.onnx: output label is string; class names are strings, which engines do not support: train "
        "on integers (sklearn.preprocessing.LabelEncoder), and put the names into the card's labels"
    )

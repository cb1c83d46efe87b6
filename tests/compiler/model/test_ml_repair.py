"""Outputs of scikit-learn's models that no engine has, and an op that ONNX Runtime gets wrong in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.errors import ModelError

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

"""Trees that an engine would follow out of its memory, or for ever, are refused when the file is opened."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgekit.compiler.model import tree_ensembles
from edgekit.compiler.model.tree_ensembles import MAX_NODES, read_tree_ensemble, read_trees
from edgekit.errors import ModelError
from tests.compiler.passes.meaning import model_of
from tests.fixtures.ml_models import stumps

TEXT = (
    "g (float[2,3] x) => (float[?,?] y) {{ y = ai.onnx.ml.TreeEnsembleRegressor <{a}, n_targets = 2> (x) }}"
)


def with_list(name: str, text: str) -> str:
    """The attributes of the three stumps, one of them replaced."""
    return re.sub(rf"{name} = \[.*?\]", f"{name} = {text}", stumps("target", 2, 0))


def test_the_tables_of_three_trees() -> None:
    (node,) = model_of(TEXT.format(a=stumps("target", 2, 0))).graph
    trees = read_trees(node, "target", 2, 3)
    assert trees.depth == 2
    assert trees.weights.shape == (6, 2)
    assert trees.covered.all()
    leaves = np.arange(6)
    assert np.array_equal(trees.when_true[:6], leaves)
    assert np.array_equal(trees.when_false[:6], leaves)
    assert trees.roots.tolist() == [0, 6, 7]
    assert trees.trees.tolist() == [0, 1, 1, 2, 2, 2]
    assert set(trees.modes[6:]) == {"BRANCH_LEQ"}


def test_leaves_by_outputs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of weights for each leaf: a few MB of attributes would make many GB of zeros."""
    (node,) = model_of(TEXT.format(a=stumps("target", 2, 0))).graph
    monkeypatch.setattr(tree_ensembles, "WEIGHTS_LIMIT", 12)
    assert read_trees(node, "target", 2, 3).weights.size == 12
    monkeypatch.setattr(tree_ensembles, "WEIGHTS_LIMIT", 11)
    with pytest.raises(
        tree_ensembles.MalformedTrees,
        match="6 leaves with 2 outputs need more than 11 weights, the supported maximum",
    ):
        read_trees(node, "target", 2, 3)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "nodes_falsenodeids",
            "[0, 2, 0, 0, 2, 0, 4, 0, 0], nodes_missing_value_tracks_true = [1]",
            "nodes_missing_value_tracks_true has 1 entries but there are 9 nodes",
        ),
        ("nodes_modes", '["LEAF"]', "nodes_modes has 1 entries but nodes_nodeids has 9"),
        (
            "nodes_modes",
            "[" + ", ".join(['"BRANCH_MOD"'] * 9) + "]",
            "nodes_modes contains BRANCH_MOD, which is not one of BRANCH_EQ, BRANCH_GT, BRANCH_GTE, "
            "BRANCH_LEQ, BRANCH_LT, BRANCH_NEQ, LEAF",
        ),
        (
            "nodes_featureids",
            "[0, 3, 0, 0, 0, 0, 0, 0, 0]",
            "nodes_featureids names a column that the input, with 3 columns, does not have",
        ),
        (
            "nodes_featureids",
            "[0, -1, 0, 0, 0, 0, 0, 0, 0]",
            "nodes_featureids names a column that the input, with 3 columns, does not have",
        ),
        ("nodes_nodeids", "[0, 0, 1, 1, 0, 1, 2, 3, 4]", "two nodes have the same tree and node id"),
        (
            "nodes_nodeids",
            f"[{MAX_NODES}, 0, 1, 2, 0, 1, 2, 3, 4]",
            f"nodes_nodeids contains a number outside 0 to {MAX_NODES - 1}",
        ),
        ("nodes_nodeids", "[7, 0, 1, 2, 0, 1, 2, 3, 4]", "a tree has no node 0 (its root)"),
        ("nodes_truenodeids", "[0, 9, 0, 0, 1, 0, 3, 0, 0]", "tree 1 leads to a node that it does not have"),
        (
            "nodes_truenodeids",
            "[0, 0, 0, 0, 1, 0, 3, 0, 0]",
            "a node has two parents",
        ),
        (
            "nodes_truenodeids",
            "[0, 2, 0, 0, 1, 0, 3, 0, 0]",
            "a node has two parents",
        ),
        (
            "target_nodeids",
            "[0, 0, 0, 0, 2, 2, 1, 1, 3, 3, 4, 4]",
            "target_nodeids names a node that is not a leaf",
        ),
        (
            "target_ids",
            "[0, 1]",
            "target_ids, target_weights, target_treeids and target_nodeids differ in their lengths",
        ),
        (
            "target_ids",
            "[0, 2, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]",
            "target_ids names an output that does not exist; there are 2",
        ),
    ],
)
def test_malformed_trees_are_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(ModelError) as refused:
        model_of(TEXT.format(a=with_list(name, text)))
    where = "node TreeEnsembleRegressor_0 (ai.onnx.ml::TreeEnsembleRegressor, opset 3)"
    assert str(refused.value) == f"{where}: {why}"


ENSEMBLE = """g (float[2,2] x) => (float[?,?] y) {{ y = ai.onnx.ml.TreeEnsemble <n_targets = 2, {a}> (x) }}"""
SETS = """tree_roots = [0], nodes_featureids = [0, 1], nodes_modes = uint8[2] {0, 6},
    nodes_splits = float[2] {0.5, 0}, nodes_truenodeids = [1, 0], nodes_trueleafs = [0, 1],
    nodes_falsenodeids = [0, 1], nodes_falseleafs = [1, 1], leaf_targetids = [0, 1],
    leaf_weights = float[2] {1, 2}, membership_values = float[4] {1, 2, 3, nan}"""


def test_the_tables_of_a_tree_with_a_set() -> None:
    (node,) = model_of(ENSEMBLE.format(a=SETS)).graph
    trees = read_tree_ensemble(node, 2, 2)
    assert trees.depth == 4
    assert trees.modes.tolist() == ["LEAF"] * 3 + ["BRANCH_LEQ"] + ["BRANCH_EQ"] * 3
    assert trees.thresholds.tolist() == [0, 0, 0, 0.5, 1, 2, 3]
    assert trees.when_true.tolist() == [0, 1, 2, 4, 0, 0, 0]
    assert trees.when_false.tolist() == [0, 1, 2, 1, 5, 6, 2]
    assert trees.weights.tolist() == [[1, 0], [1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("nodes_modes", "uint8[1] {0}", "its lists nodes_... differ in their lengths"),
        ("nodes_modes", "uint8[2] {0, 7}", "nodes_modes contains a number outside 0 to 6"),
        (
            "nodes_featureids",
            "[0, 2]",
            "nodes_featureids names a column that the input, with 2 columns, does not have",
        ),
        ("tree_roots", "[2]", "tree_roots names a node that does not exist"),
        ("tree_roots", "[0, 0]", "a node has two parents"),
        ("tree_roots", "[1]", "a node cannot be reached from a root"),
        (
            "nodes_truenodeids",
            "[2, 0]",
            "nodes_truenodeids or nodes_falsenodeids leads to a node that does not exist",
        ),
        ("nodes_truenodeids", "[0, 0]", "a node has two parents"),
        ("leaf_targetids", "[0, 2]", "leaf_targetids names an output that does not exist; there are 2"),
        (
            "leaf_targetids",
            "[0]",
            "has no nodes, no tree_roots, or other lengths of leaf_targetids and leaf_weights",
        ),
        ("membership_values", "float[1] {1}", "membership_values has 0 sets for 1 nodes, or an empty set"),
        ("membership_values", "float[1] {nan}", "membership_values has 1 sets for 1 nodes, or an empty set"),
        ("nodes_modes", "[0, 6]", "attribute nodes_modes has type INTS; the op takes TENSOR"),
    ],
)
def test_malformed_tree_ensembles_are_refused(name: str, text: str, why: str) -> None:
    attributes = re.sub(
        rf"{name} = [^,]*?([\[{{].*?[\]}}])( \{{.*?\}})?", f"{name} = {text}", SETS, flags=re.S
    )
    with pytest.raises(ModelError) as refused:
        model_of(ENSEMBLE.format(a=attributes))
    assert str(refused.value) == f"node TreeEnsemble_0 (ai.onnx.ml::TreeEnsemble, opset 5): {why}"


def test_a_circle_beside_the_root_is_refused() -> None:
    """Each of its nodes is reached once, but from no root."""
    lists = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_truenodeids": [0, 2, 1],
        "nodes_falsenodeids": [0, 2, 1],
        "target_treeids": [0],
        "target_nodeids": [0],
        "target_ids": [0],
        "target_weights": [1.0],
    }
    attributes = ", ".join(f"{name} = {values}" for name, values in lists.items())
    attributes += ', nodes_modes = ["LEAF", "BRANCH_LEQ", "BRANCH_LEQ"]'
    with pytest.raises(ModelError, match=r"a node cannot be reached from a root$"):
        model_of(TEXT.format(a=attributes))


def test_a_set_is_a_chain_of_comparisons_with_one_branch() -> None:
    """x in {1, 4, 7}, as onnxmltools writes it: three nodes lead to leaf 3."""
    lists: dict[str, Any] = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": range(5), "nodes_featureids": [0] * 5,
        "nodes_values": [1.0, 4.0, 7.0, 0.0, 0.0], "nodes_truenodeids": [3, 3, 3, 0, 0],
        "nodes_falsenodeids": [1, 2, 4, 0, 0], "target_treeids": [0, 0], "target_nodeids": [3, 4],
        "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    modes = ["BRANCH_EQ"] * 3 + ["LEAF"] * 2
    read = read_trees(_node(**lists, nodes_modes=modes), "target", 1, 1)
    assert read.depth == 3
    assert len(set(read.when_true[2:].tolist())) == 1
    modes[1] = "BRANCH_LEQ"
    with pytest.raises(tree_ensembles.MalformedTrees, match="a node has two parents"):
        read_trees(_node(**lists, nodes_modes=modes), "target", 1, 1)


def test_a_forest_of_many_nodes() -> None:
    trees, inner = 200, 255
    count = 2 * inner + 1
    ids = np.tile(np.arange(count), trees)
    branch = ids < inner
    node = _node(
        nodes_treeids=np.repeat(np.arange(trees), count),
        nodes_nodeids=ids,
        nodes_featureids=np.zeros_like(ids),
        nodes_values=np.zeros(len(ids)),
        nodes_truenodeids=np.where(branch, 2 * ids + 1, 0),
        nodes_falsenodeids=np.where(branch, 2 * ids + 2, 0),
        target_treeids=np.repeat(np.arange(trees), count)[~branch],
        target_nodeids=ids[~branch],
        target_ids=np.zeros(int((~branch).sum()), int),
        target_weights=np.ones(int((~branch).sum())),
        nodes_modes=["BRANCH_LEQ" if b else "LEAF" for b in branch],
    )
    read = read_trees(node, "target", 1, 3)
    assert read.depth == 8
    assert read.weights.sum() == trees * (inner + 1)


def _node(**lists: Any) -> ir.Node:
    plain: dict[str, Any] = {name: list(values) for name, values in lists.items()}
    proto = onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **plain)
    return ir.serde.deserialize_node(proto)

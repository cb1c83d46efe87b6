"""Decode TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml into tables, and check them.

The attributes are parallel lists, one entry per node of a tree. Engines index memory by their numbers, so
values out of range are rejected here, before an engine reads them.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.tensor_spec import Array

MAX_DEPTH = 10_000
"""Deepest tree that is read."""

MAX_NODES = 2**31
"""Node ids are smaller."""

WEIGHTS_LIMIT = 2**25
"""Most weights of one ensemble's leaves, which are held as a table: 160 MB."""
LEAF = "LEAF"
_MODES = frozenset({"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", LEAF})


@dataclass(frozen=True)
class TreeEnsemble:
    """Nodes of all trees, leaves first.

    Attributes:
        roots: The node at which each tree begins, int64[trees].
        features: Column of the input that a node compares, int64[nodes]; 0 in leaves.
        thresholds: Threshold that the column is compared with, float32[nodes].
        when_true, when_false: The next node, int64[nodes]; a leaf is its own.
        weights: Value that each leaf adds to each output, float32[leaves, outputs].
        covered: Whether the leaf has a weight for the output, bool[leaves, outputs].
        trees: The tree of each leaf, int64[leaves].
        modes: The comparisons that occur.
        tracks_missing: Whether a NaN is sent to ``when_true`` somewhere.
        depth: Steps from a root to the farthest leaf.
    """

    roots: Array
    features: Array
    thresholds: Array
    when_true: Array
    when_false: Array
    weights: Array
    covered: Array
    trees: Array
    modes: frozenset[str]
    tracks_missing: bool
    depth: int


class MalformedTrees(Exception):  # noqa: N818  (it becomes the text of a ModelError)
    """The attributes describe no trees."""


def read_trees(node: ir.Node, kind: str, outputs: int, features: int) -> TreeEnsemble:
    """Decode the trees of a node.

    Args:
        node: A tree ensemble of ai.onnx.ml 1 to 4.
        kind: Prefix of the leaves' attributes: ``class`` or ``target``.
        outputs: Number of classes or targets.
        features: Columns of the input.

    Raises:
        MalformedTrees: with the reason.
    """
    tree_ids, node_ids = _ints(node, "nodes_treeids"), _ints(node, "nodes_nodeids")
    count = len(node_ids)
    modes = _texts(node, "nodes_modes")
    values = _floats(node, "nodes_values")
    columns = _ints(node, "nodes_featureids")
    nexts = {name: _ints(node, f"nodes_{name}nodeids") for name in ("true", "false")}
    lists: dict[str, Sized] = {"nodes_treeids": tree_ids, "nodes_modes": modes, "nodes_values": values}
    lists |= {"nodes_featureids": columns, **{f"nodes_{name}nodeids": each for name, each in nexts.items()}}
    for name, given in lists.items():
        if len(given) != count:
            raise MalformedTrees(f"{name} has {len(given)} entries but nodes_nodeids has {count}")
    if not count:
        raise MalformedTrees("has no nodes")
    unknown = sorted(set(modes) - _MODES)
    if unknown:
        raise MalformedTrees(
            f"nodes_modes contains {unknown[0][:40]}, which is not one of {', '.join(sorted(_MODES))}"
        )
    leaf = np.array([mode == LEAF for mode in modes])
    if np.any((columns[~leaf] < 0) | (columns[~leaf] >= features)):
        raise MalformedTrees(
            f"nodes_featureids names a column that the input, with {features} columns, does not have"
        )
    if np.any(node_ids < 0) or np.any(node_ids >= MAX_NODES):
        raise MalformedTrees(f"nodes_nodeids contains a number outside 0 to {MAX_NODES - 1}")
    rows = _Rows(tree_ids, node_ids)
    order = np.concatenate([np.flatnonzero(leaf), np.flatnonzero(~leaf)])
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    own = np.arange(count)
    steps = {name: np.where(leaf, own, rows.find(tree_ids, each)) for name, each in nexts.items()}
    for each in steps.values():
        if np.any(each < 0):
            raise MalformedTrees(f"tree {tree_ids[each < 0][0]} leads to a node that it does not have")
    starts = rows.find(rows.trees, np.zeros_like(rows.trees))
    if np.any(starts < 0):
        raise MalformedTrees("a tree has no node 0 (its root)")
    depth = _depth(starts, steps["true"], steps["false"], leaf)
    weights, covered = _leaf_weights(node, kind, outputs, rows, place, leaf)
    return TreeEnsemble(
        roots=place[starts],
        features=np.where(leaf, 0, columns)[order],
        thresholds=values[order],
        when_true=place[steps["true"]][order],
        when_false=place[steps["false"]][order],
        weights=weights,
        covered=covered,
        trees=tree_ids[order][: len(weights)],
        modes=frozenset(modes) - {LEAF},
        tracks_missing=bool(np.any(_ints(node, "nodes_missing_value_tracks_true"))),
        depth=depth,
    )


class _Rows:
    """Finds the row of a node by its tree's id and its own."""

    def __init__(self, tree_ids: Array, node_ids: Array) -> None:
        self.trees = np.unique(tree_ids)
        keys = self._keys(tree_ids, node_ids)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        if np.any(self._sorted[1:] == self._sorted[:-1]):
            raise MalformedTrees("two nodes have the same tree and node id")

    def _keys(self, tree_ids: Array, node_ids: Array) -> Array:
        return np.searchsorted(self.trees, tree_ids) * MAX_NODES + node_ids

    def find(self, tree_ids: Array, node_ids: Array) -> Array:
        """Return the row of each pair, or -1 if there is none."""
        known = np.isin(tree_ids, self.trees) & (node_ids >= 0) & (node_ids < MAX_NODES)
        keys = self._keys(tree_ids, node_ids)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(known & (self._sorted[at] == keys), self._order[at], -1)


def _depth(roots: Array, when_true: Array, when_false: Array, leaf: Array) -> int:
    """Return the distance to the farthest leaf. Check that every node is reached exactly once."""
    seen = np.zeros(len(leaf), bool)
    front, depth = roots, 0
    while True:
        if np.any(seen[front]) or len(np.unique(front)) != len(front) or depth > MAX_DEPTH:
            raise MalformedTrees("a node has two parents")
        seen[front] = True
        inner = front[~leaf[front]]
        if not len(inner):
            break
        front, depth = np.concatenate([when_true[inner], when_false[inner]]), depth + 1
    if not seen.all():
        raise MalformedTrees("a node cannot be reached from a root")
    return depth


def _leaf_weights(
    node: ir.Node, kind: str, outputs: int, rows: _Rows, place: Array, leaf: Array
) -> tuple[Array, Array]:
    ids, values = _ints(node, f"{kind}_ids"), _floats(node, f"{kind}_weights")
    trees, nodes = _ints(node, f"{kind}_treeids"), _ints(node, f"{kind}_nodeids")
    if not len(ids) == len(values) == len(trees) == len(nodes):
        raise MalformedTrees(
            f"{kind}_ids, {kind}_weights, {kind}_treeids and {kind}_nodeids differ in their lengths"
        )
    if np.any((ids < 0) | (ids >= outputs)):
        raise MalformedTrees(f"{kind}_ids names an output that does not exist; there are {outputs}")
    found = rows.find(trees, nodes)
    if np.any(found < 0) or not leaf[found].all():
        raise MalformedTrees(f"{kind}_nodeids names a node that is not a leaf")
    leaves = int(leaf.sum())
    if leaves * outputs > WEIGHTS_LIMIT:
        raise MalformedTrees(
            f"{leaves} leaves with {outputs} outputs need more than {WEIGHTS_LIMIT} weights, the "
            "supported maximum"
        )
    weights, covered = np.zeros((leaves, outputs), np.float32), np.zeros((leaves, outputs), bool)
    at = (place[found], ids)
    np.add.at(weights, at, values)
    covered[at] = True
    return weights, covered


def _ints(node: ir.Node, name: str) -> Array:
    attribute = node.attributes.get(name)
    return np.array(attribute.as_ints() if attribute is not None else (), np.int64)


def _floats(node: ir.Node, name: str) -> Array:
    if f"{name}_as_tensor" in node.attributes:
        raise MalformedTrees(f"{name}_as_tensor is in double precision; export with float inputs")
    attribute = node.attributes.get(name)
    return np.array(attribute.as_floats() if attribute is not None else (), np.float32)


def _texts(node: ir.Node, name: str) -> list[str]:
    attribute = node.attributes.get(name)
    return list(attribute.as_strings()) if attribute is not None else []

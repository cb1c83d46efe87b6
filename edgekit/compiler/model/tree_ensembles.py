"""Decode TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml into tables, and check
them.

The attributes are parallel lists, one entry per node of a tree; leaves of TreeEnsemble have their own.
Engines index memory by their numbers, so values out of range are rejected here, before an engine reads them.
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
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""Comparisons, in the order of TreeEnsemble's numbers."""
MEMBER = len(MODES)
"""TreeEnsemble's number for a node that tests membership of a set."""
_MODES = frozenset({*MODES, LEAF})


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
        modes: Comparison of each node, str[nodes]; LEAF in leaves.
        missing: Whether a node sends a NaN to ``when_true``, bool[nodes].
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
    modes: Array
    missing: Array
    depth: int


class MalformedTrees(Exception):  # noqa: N818  (it becomes the text of a ModelError)
    """The attributes describe no trees."""


def read_trees(node: ir.Node, kind: str, outputs: int, features: int) -> TreeEnsemble:
    """Decode the trees of a node.

    Args:
        kind: Prefix of the leaves' attributes: ``class`` or ``target``.
    """
    tree_ids, node_ids = _ints(node, "nodes_treeids"), _ints(node, "nodes_nodeids")
    count = len(node_ids)
    modes = _texts(node, "nodes_modes")
    values = _floats(node, "nodes_values")
    columns = _ints(node, "nodes_featureids")
    nexts = {name: _ints(node, f"nodes_{name}nodeids") for name in ("true", "false")}
    lists: dict[str, Sized] = {"nodes_treeids": tree_ids, "nodes_modes": modes, "nodes_values": values}
    missing = _missing(node, count)
    lists |= {"nodes_featureids": columns, **{f"nodes_{name}nodeids": ids for name, ids in nexts.items()}}
    for name, entries in lists.items():
        if len(entries) != count:
            raise MalformedTrees(f"{name} has {len(entries)} entries but nodes_nodeids has {count}")
    if not count:
        raise MalformedTrees("has no nodes")
    unknown = sorted(set(modes) - _MODES)
    if unknown:
        raise MalformedTrees(
            f"nodes_modes contains {unknown[0][:40]}, which is not one of {', '.join(sorted(_MODES))}"
        )
    leaf = np.array([mode == LEAF for mode in modes])
    _check_columns(columns[~leaf], features)
    if np.any(node_ids < 0) or np.any(node_ids >= MAX_NODES):
        raise MalformedTrees(f"nodes_nodeids contains a number outside 0 to {MAX_NODES - 1}")
    rows = _Rows(tree_ids, node_ids)
    order = np.concatenate([np.flatnonzero(leaf), np.flatnonzero(~leaf)])
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    positions = np.arange(count)
    steps = {name: np.where(leaf, positions, rows.find(tree_ids, ids)) for name, ids in nexts.items()}
    for ids in steps.values():
        if np.any(ids < 0):
            raise MalformedTrees(f"tree {tree_ids[ids < 0][0]} leads to a node that it does not have")
    starts = rows.find(rows.trees, np.zeros_like(rows.trees))
    if np.any(starts < 0):
        raise MalformedTrees("a tree has no node 0 (its root)")
    equal = np.array([mode == "BRANCH_EQ" for mode in modes])
    depth = _depth(starts, steps["true"], steps["false"], leaf, np.ones(count, np.int64), equal)
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
        modes=np.array(modes)[order],
        missing=(missing & ~leaf)[order],
        depth=depth,
    )


def read_tree_ensemble(node: ir.Node, outputs: int, features: int) -> TreeEnsemble:
    """Decode the trees of a TreeEnsemble (ai.onnx.ml 5), whose leaves have one weight each.

    A test for membership of a set becomes a chain of comparisons:

        x in {a, b} ? yes : no    =>    x == a ? yes : (x == b ? yes : no)
    """
    columns, roots = _ints(node, "nodes_featureids"), _ints(node, "tree_roots")
    modes, splits = _tensor(node, "nodes_modes").astype(np.int64), _tensor(node, "nodes_splits")
    targets, values = _ints(node, "leaf_targetids"), _tensor(node, "leaf_weights")
    count, missing = len(columns), _missing(node, len(columns))
    is_leaf = np.concatenate([_ints(node, f"nodes_{name}leafs") for name in ("true", "false")]).astype(bool)
    following = np.concatenate([_ints(node, f"nodes_{name}nodeids") for name in ("true", "false")])
    if not len(modes) == len(splits) == count or not len(is_leaf) == len(following) == 2 * count:
        raise MalformedTrees("its lists nodes_... differ in their lengths")
    if not count or not len(roots) or len(targets) != len(values):
        raise MalformedTrees(
            "has no nodes, no tree_roots, or other lengths of leaf_targetids and leaf_weights"
        )
    if np.any((targets < 0) | (targets >= outputs)):
        raise MalformedTrees(f"leaf_targetids names an output that does not exist; there are {outputs}")
    if np.any((modes < 0) | (modes > MEMBER)):
        raise MalformedTrees(f"nodes_modes contains a number outside 0 to {MEMBER}")
    if np.any((following < 0) | (following >= np.where(is_leaf, len(targets), count))):
        raise MalformedTrees("nodes_truenodeids or nodes_falsenodeids leads to a node that does not exist")
    if np.any((roots < 0) | (roots >= count)):
        raise MalformedTrees("tree_roots names a node that does not exist")
    _check_columns(columns, features)
    leaves = int(is_leaf.sum())  # one for each end of a branch; the node's own may be shared
    _check_weights(leaves, outputs)
    is_member = modes == MEMBER
    sets = _sets(node, int(is_member.sum()))
    lengths = np.ones(leaves + count, np.int64)
    lengths[leaves:][is_member] = [len(members) for members in sets]
    branches = np.split(np.where(is_leaf, np.cumsum(is_leaf) - 1, following + leaves), 2)
    indices = np.arange(leaves)
    when_true, when_false = (np.concatenate([indices, branch]) for branch in branches)
    leaf, equal = np.arange(leaves + count) < leaves, np.zeros(leaves + count, bool)
    depth = _depth(roots + leaves, when_true, when_false, leaf, lengths, equal)
    weights, covered = np.zeros((leaves, outputs), np.float32), np.zeros((leaves, outputs), bool)
    leaf_ids = following[is_leaf]
    weights[indices, targets[leaf_ids]], covered[indices, targets[leaf_ids]] = values[leaf_ids], True
    thresholds = np.concatenate([np.zeros(leaves), splits]).astype(np.float32)
    chained = _Chains(leaves + count, when_false)
    for index, members in zip(np.flatnonzero(is_member) + leaves, sets, strict=True):
        thresholds[index] = members[0]
        chained.add(int(index), members[1:])
    copies = chained.copies
    return TreeEnsemble(
        roots=roots + leaves,
        features=np.concatenate([np.zeros(leaves, np.int64), columns])[copies],
        thresholds=np.concatenate([thresholds, np.array(chained.thresholds, np.float32)]),
        when_true=when_true[copies],
        when_false=np.array(chained.when_false, np.int64),
        weights=weights,
        covered=covered,
        trees=np.zeros(leaves, np.int64),
        modes=np.array([LEAF] * leaves + [(*MODES, "BRANCH_EQ")[mode] for mode in modes])[copies],
        missing=np.concatenate([np.zeros(leaves, bool), missing])[copies],
        depth=depth,
    )


class _Chains:
    """Comparisons that are appended to the nodes: copies of a node with another threshold."""

    def __init__(self, count: int, when_false: Array) -> None:
        self.copies, self.thresholds = list(range(count)), list[float]()
        self.when_false: list[int] = when_false.tolist()

    def add(self, node: int, thresholds: Array) -> None:
        last = self.when_false[node]
        for threshold in thresholds:
            self.when_false[node] = len(self.copies)
            self.copies.append(self.copies[node])
            self.thresholds.append(float(threshold))
            node = len(self.when_false)
            self.when_false.append(last)


def _sets(node: ir.Node, count: int) -> list[Array]:
    """Return the members of each set; a NaN ends each."""
    values = _tensor(node, "membership_values") if "membership_values" in node.attributes else np.zeros(0)
    ends = np.flatnonzero(np.isnan(values))
    sets = np.split(values, ends + 1)[:-1]
    if len(sets) != count or any(len(members) < 2 for members in sets):
        raise MalformedTrees(f"membership_values has {len(sets)} sets for {count} nodes, or an empty set")
    return [members[:-1] for members in sets]


class _Rows:
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
        is_valid = np.isin(tree_ids, self.trees) & (node_ids >= 0) & (node_ids < MAX_NODES)
        keys = self._keys(tree_ids, node_ids)
        positions = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(is_valid & (self._sorted[positions] == keys), self._order[positions], -1)


def _depth(
    roots: Array, when_true: Array, when_false: Array, leaf: Array, lengths: Array, equal: Array
) -> int:
    """Return the distance to the farthest leaf; a node counts by its length. Check that every node has one
    parent. Only comparisons by BRANCH_EQ share their true branch: converters of LightGBM and XGBoost write a
    set of categories as a chain of them."""
    inner = ~leaf
    pending = np.bincount(np.concatenate([when_true[inner], when_false[inner]]), minlength=len(leaf))
    reached = np.zeros(len(leaf), bool)
    distances = np.zeros(len(leaf), np.int64)
    front, levels = roots, 0
    while len(front):
        if np.any(reached[front]) or len(np.unique(front)) != len(front) or levels > MAX_DEPTH:
            raise MalformedTrees("a node has two parents")
        reached[front] = True
        parents = front[inner[front]]
        for following in (when_true, when_false):
            np.maximum.at(distances, following[parents], distances[parents] + lengths[parents])
            np.subtract.at(pending, following[parents], 1)
        children, levels = np.unique(np.concatenate([when_true[parents], when_false[parents]])), levels + 1
        front = children[pending[children] == 0]
    inner &= reached
    edges = [when_false[inner], when_true[inner & ~equal], np.unique(when_true[inner & equal])]
    if np.any(np.bincount(np.concatenate(edges)) > 1):
        raise MalformedTrees("a node has two parents")
    if not reached.all():
        raise MalformedTrees("a node cannot be reached from a root")
    return int(distances.max())


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
    leaf_rows = rows.find(trees, nodes)
    if np.any(leaf_rows < 0) or not leaf[leaf_rows].all():
        raise MalformedTrees(f"{kind}_nodeids names a node that is not a leaf")
    leaves = int(leaf.sum())
    _check_weights(leaves, outputs)
    weights, covered = np.zeros((leaves, outputs), np.float32), np.zeros((leaves, outputs), bool)
    cells = (place[leaf_rows], ids)
    np.add.at(weights, cells, values)
    covered[cells] = True
    return weights, covered


def _check_weights(leaves: int, outputs: int) -> None:
    if leaves * outputs > WEIGHTS_LIMIT:
        raise MalformedTrees(
            f"{leaves} leaves with {outputs} outputs need more than {WEIGHTS_LIMIT} weights, the "
            "supported maximum"
        )


def _check_columns(columns: Array, features: int) -> None:
    if np.any((columns < 0) | (columns >= features)):
        raise MalformedTrees(
            f"nodes_featureids names a column that the input, with {features} columns, does not have"
        )


def _missing(node: ir.Node, count: int) -> Array:
    """Return whether each node sends a NaN to its true branch, bool[nodes]; the list may be absent."""
    flags = _ints(node, "nodes_missing_value_tracks_true")
    if len(flags) not in (0, count):
        raise MalformedTrees(
            f"nodes_missing_value_tracks_true has {len(flags)} entries but there are {count} nodes"
        )
    return flags.astype(bool) if len(flags) else np.zeros(count, bool)


def _tensor(node: ir.Node, name: str) -> Array:
    if name not in node.attributes:
        raise MalformedTrees(f"has no {name}")
    return node.attributes[name].as_tensor().numpy().reshape(-1)


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

"""From the nodes of an artifact back to the source model's: the entry ``source-names.json`` of a bundle.

    {"nodes":  [[canonical node, [its values], [source nodes], [canonical nodes it reads]], ...],
     "source": [[node, operator, scope], ...]}

Nodes are told by their index in these lists. The first source node of a canonical one makes its value; the
others were merged with it. What is the same need not be said twice: the canonical node is "" if it has that
source node's name, a value that has the canonical node's name is left out, and so is a scope that the name of
the source node tells. Engines name what they run by canonical nodes and values, with endings of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.system.formats.strict_json import JsonError, decode
from edgekit.target.node_reports import without_endings
from edgekit.tensor_spec import Json

ENTRY = "source-names.json"
EXTENSION = "source_names"
"""Key of the manifest's extensions that names the entry; absent in bundles of before."""
LIMIT_BYTES = 16 << 20
CALLED_BY = frozenset(
    ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "LSTM", "GRU", "RNN", "Attention")
)
CALLED_BY |= {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "LayerNormalization"}
"""Operators that a fusion is called by, before others: a Conv, not the activation merged into it."""


class SourceNode(NamedTuple):
    """A node of the source model.

    Attributes:
        name: Its name, or that of its first output if it has none.
        scope: Path of the module in its author's program, e.g. ``backbone.stem.conv``; "" if the exporter
            left none.
    """

    name: str
    op: str
    scope: str


class CanonicalNode(NamedTuple):
    """A node of the canonical graph: its name, its values, its source nodes, and the nodes that it reads."""

    name: str
    values: tuple[str, ...]
    source: tuple[SourceNode, ...]
    reads: tuple[int, ...]


class SourceNames:
    """Looks up what artifacts' nodes are in the source model."""

    def __init__(self, nodes: Sequence[CanonicalNode]) -> None:
        self._nodes = nodes
        self._by_name: dict[str, list[int]] = {}
        for index, node in enumerate(nodes):
            for value in node.values:
                self._by_name[value] = [index]
        indices_by_name: dict[str, list[int]] = {}
        for index, node in enumerate(nodes):
            indices_by_name.setdefault(node.name, []).append(index)
        self._by_name |= indices_by_name

    @property
    def nodes(self) -> Sequence[CanonicalNode]:
        """In the graph's order."""
        return self._nodes

    def of_each(self, rows: Sequence[Sequence[str]]) -> list[tuple[SourceNode, ...]]:
        """Return the source nodes of each row that an engine runs, with the one to name the row by first; ()
        if no name is known.

        A canonical node that nobody names runs in one that reads it: an engine names what it has merged by
        the last value.

        Args:
            rows: For each one, names of the artifact's nodes or values, as the engine has them.
        """
        claims = [list(dict.fromkeys(i for name in names for i in self._indices(name))) for names in rows]
        claimed = {index for claim in claims for index in claim}
        node_groups = []
        for claim in claims:
            for index in claim:  # grows as it goes
                merged = [i for i in self._nodes[index].reads if i not in claimed]
                claimed.update(merged)
                claim += merged
            nodes = dict.fromkeys(node for index in claim for node in self._nodes[index].source)
            node_groups.append(tuple(sorted(nodes, key=lambda node: node.op not in CALLED_BY)))
        return node_groups

    def maker(self, name: str) -> SourceNode | None:
        """Return the source node that computes a node's or a value's result, without merged nodes; None if it
        is not known."""
        indices = self._indices(name)
        source = self._nodes[indices[0]].source if indices else ()
        return source[0] if source else None

    def called(self, name: str) -> str:
        """Return the name of the node that computes a result, with its module if the name lacks it."""
        node = self.maker(name)
        if node is None:
            return name
        return f"{node.scope}: {node.name}" if node.scope and "/" not in node.name else node.name

    def know(self, names: Sequence[str]) -> bool:
        """Return whether one of the names is known."""
        return any(self._indices(name) for name in names)

    def _indices(self, name: str) -> list[int]:
        return next((self._by_name[n] for n in without_endings(name) if n in self._by_name), [])


def read_source_names(bundle: Bundle) -> SourceNames:
    """Return the names of a bundle; none of one that was built before there were any.

    Raises:
        BundleError: the entry is damaged, or not what a build writes.
    """
    entry = bundle.manifest.get("extensions", {}).get(EXTENSION)
    if entry is None:
        return SourceNames([])
    try:
        return SourceNames(_nodes(decode(bytes(bundle.read(entry)), ENTRY, LIMIT_BYTES)))
    except (JsonError, ValueError, TypeError, LookupError, AttributeError) as problem:
        raise BundleError(f"{bundle.name}: its names of source nodes can't be read: {problem}") from None


def _nodes(table: Json) -> list[CanonicalNode]:
    source = [_source_node(*row) for row in table["source"]]
    count = len(table["nodes"])
    nodes = []
    for name, values, indices, reads in table["nodes"]:
        if not all(isinstance(i, int) and 0 <= i < count for i in reads):
            raise ValueError("a node reads a name that does not exist")
        source_nodes = tuple(source[index] for index in indices)
        called = str(name) or (source_nodes[0].name if source_nodes else "")
        nodes.append(CanonicalNode(called, tuple(map(str, values)), source_nodes, tuple(reads)))
    return nodes


def _source_node(name: str, op: str, scope: str = "") -> SourceNode:
    return SourceNode(str(name), str(op), str(scope) or scope_in_name(str(name)))


def scope_in_name(name: str) -> str:
    """Return the module that a node was called in, if the exporter has put its path into the node's name.

    PyTorch's older exporter begins it with a slash, and repeats the parent before a child of a list.

    >>> scope_in_name("/dark2/dark2.0/conv/Conv"), scope_in_name("block_1/add"), scope_in_name("Conv_41")
    ('dark2.0.conv', 'block_1', '')
    """
    path = name.split("/")
    if len(path) < 2 or ";" in name:  # several names in one, by TFLite's converter
        return ""
    if path[0]:
        return "/".join(path[:-1])
    parts: list[str] = []
    for part in path[1:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts)

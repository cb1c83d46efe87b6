"""Digests of everything a value depends on, as cache keys: plans with the same first layers share their
weights.

The digest of a node covers its op, attributes and constants, the Q/DQ pairs of its inputs, how its weights
were rounded, and the same of every node before it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.placement.kernels import node_name
from edgekit.compiler.quantize.recipe import QuantizationPlan, QuantizedWeights
from edgekit.compiler.quantize.weights.sampled_positions import Targets
from edgekit.compiler.quantize.weights.segments import reads, reads_integers

T = TypeVar("T")


class LruCache(Generic[T]):
    """A least-recently-used cache with a limit in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self._total = limit_bytes, 0
        self._entries: OrderedDict[str, tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> T | None:
        if name not in self._entries:
            return None
        self._entries.move_to_end(name)
        return self._entries[name][0]

    def put(self, name: str, value: T, size_bytes: int) -> None:
        if name in self._entries:
            self._total -= self._entries.pop(name)[1]
        self._entries[name] = value, size_bytes
        self._total += size_bytes
        while self._total > self._limit:
            _, (_, freed) = self._entries.popitem(last=False)
            self._total -= freed


@dataclass(frozen=True)
class WeightCache:
    """Results of ``optimize``, for later plans of the same or another model. Not thread-safe.

    Attributes:
        weights: Digest of a node, the samples and the recipe -> its quantized weights.
        targets: The same of the float network -> its outputs at sampled positions.
    """

    weights: LruCache[QuantizedWeights] = field(default_factory=lambda: LruCache(256 * 2**20))
    targets: LruCache[Targets] = field(default_factory=lambda: LruCache(64 * 2**20))


def digest_of(*parts: object) -> str:
    """sha256 (hexadecimal) over the texts of the parts."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def histories(model: ir.Model, plan: QuantizationPlan, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the history of each node of the main graph, by the node's name.

    Args:
        plan: Positions of the pairs; an empty one for the histories of the float network.
        settings: Node -> what its weights depend on besides its inputs, for nodes whose weights are rounded.
    """
    of_value: dict[int, str] = {id(value): f"input {value.name}" for value in model.graph.inputs}
    of_node: dict[str, str] = {}
    for node in model.graph:
        name = node_name(node)
        read = []
        for value in reads(node):
            if id(value) not in of_value:
                of_value[id(value)] = _constant(value)
            read.append(of_value[id(value)] + _pair(value, node, plan))
        names = [str(value.name) if value is not None else "" for value in node.inputs]
        # The name seeds the draw of positions, so the weights depend on it.
        mine = f"{name} {settings[name]}" if name in settings else ""
        of_node[name] = digest_of(_operator(node), [name == "" for name in names], mine, *read)
        for index, value in enumerate(node.outputs):
            of_value[id(value)] = f"{of_node[name]}:{index}"
    return of_node


def _operator(node: ir.Node) -> str:
    """Return the op with its attributes and subgraphs, without names."""
    proto = ir.serde.serialize_node(node)
    for field_name in ("input", "output", "name", "doc_string", "metadata_props"):
        proto.ClearField(field_name)
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()


def _constant(value: ir.Value) -> str:
    array = array_of(value)
    if array is None:
        return f"value {value.name}"
    content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"{array.dtype.str} {array.shape} {content}"


def _pair(value: ir.Value, node: ir.Node, plan: QuantizationPlan) -> str:
    if not reads_integers(value, node, plan):
        return ""
    affine = plan.activations[str(value.name)]
    # uint8 is int8 shifted by 128: without the zero point the integers are the same.
    bytes_, zero = affine.dtype in ("int8", "uint8"), affine.zero_point.astype(np.int64)
    zero = zero - 128 if affine.dtype == "uint8" else zero
    dtype = "8 bits" if bytes_ else affine.dtype
    return f" {dtype} {affine.axis} {affine.scale.tobytes().hex()} {zero.tobytes().hex()}"

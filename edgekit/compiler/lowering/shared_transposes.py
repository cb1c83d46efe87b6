"""Matrices that a model holds in both orientations, for targets that take ONNX.

    E [V, D] -> Gather(ids)                E -> Gather(ids)
    E' [D, V] -> MatMul(x)          =>     E -> Transpose -> MatMul(x)

A language model's embedding is often its last product, too. The engines fold the Transpose when they load the
model; the file has the numbers once.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import SHARED_FROM_ELEMENTS, array_of, fingerprint, free_name, same_bits


def with_shared_transposes(model: ir.Model) -> ir.Model:
    """Return a copy that computes large transposes of earlier matrices from those, or ``model`` itself."""
    pairs = transposed_pairs(model.graph)
    if not pairs:
        return model
    copy = model.clone()
    for name, first in pairs.items():
        value, source = (copy.graph.initializers[key] for key in (name, first))
        node = ir.node("Transpose", [source], {"perm": [1, 0]}, name=f"{name}/transposed")
        transposed = node.outputs[0]
        transposed.name = free_name(copy, f"{name}/transposed")
        transposed.type, transposed.shape = value.type, value.shape
        value.replace_all_uses_with(transposed)
        del copy.graph.initializers[name]
        copy.graph.insert_before(copy.graph[0], node)
    return copy


def transposed_pairs(graph: ir.Graph) -> dict[str, str]:
    """Return, by name of a matrix, the name of the earlier matrix that it is the transpose of."""
    by_digest: dict[tuple[object, ...], list[ir.Value]] = {}
    pairs: dict[str, str] = {}
    for name, value in graph.initializers.items():
        array = array_of(value)
        if array is None or array.ndim != 2 or array.size < SHARED_FROM_ELEMENTS or value.is_graph_output():
            continue
        digest, transposed_digest = fingerprint(array), fingerprint(array.T)
        if digest is None or transposed_digest is None:
            continue
        for other in by_digest.get(transposed_digest, ()):
            other_array = array_of(other)
            if other_array is not None and same_bits(other_array, array.T):
                pairs[name] = str(other.name)
                break
        else:
            by_digest.setdefault(digest, []).append(value)
    return pairs

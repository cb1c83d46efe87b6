"""Why a variant is larger than its source: evidence for the report.

Layers may share a weight in the source and need different ones in a variant: each scaled by a normalization
of its own, or float for one operator and integers for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.lowering.shared_transposes import transposed_pairs
from edgekit.compiler.model.rewriting import SHARED_FROM_ELEMENTS
from edgekit.system.formats.plain_text import shortened, size
from edgekit.target.precisions import FULL_PRECISION

if TYPE_CHECKING:
    import onnx_ir as ir

LARGER = 1.1
GRAPH_BYTES = 256 * 1024
"""Room for the graph, its names and settings: OpenVINO's take 1 kB for a node."""
GROWTH = 1.02
"""Weights may grow by so much before it is a reason: biases, shapes and tables of the canonical graph."""
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def explain_sizes(source: ir.Model, canonical: ir.Model, variants: Sequence[VariantBuild]) -> None:
    """Write ``larger`` into the evidence of every kept variant that is larger than the source's weights."""
    weights = sum(_constants(source).values())
    for variant in variants:
        size_bytes = variant.evidence["size_bytes"]
        if variant.rejected or variant.shrunk is not None:
            continue
        if size_bytes > LARGER * weights + GRAPH_BYTES:
            because = list(_reasons(source, canonical, variant))
            variant.evidence["larger"] = {"source_weight_bytes": weights, "because": because}


def _reasons(source: ir.Model, canonical: ir.Model, variant: VariantBuild) -> Iterator[str]:
    before, after = _constants(source), _constants(canonical)
    if sum(after.values()) > GROWTH * sum(before.values()):
        added = sorted(((count, name) for name, count in after.items() if name not in before), reverse=True)
        named = ", ".join(f"{shortened(name)} ({size(count)})" for count, name in added[:2])
        more = f" and {len(added) - 2} more" if added[2:] else ""
        grown = size(sum(after.values()) - sum(before.values()))
        yield f"the simplified graph has {grown} more weights than the source, e.g. {named}{more}"
    if variant.precision != FULL_PRECISION:
        for name, ops in _of_two_forms(canonical):
            yield f"{shortened(name)} is stored twice: quantized, and as floats for {ops}"
    files = sorted(((len(content), name) for name, content in variant.artifact.files.items()), reverse=True)
    yield "its files: " + ", ".join(f"{name} {size(count)}" for count, name in files[:3])


def _of_two_forms(model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield large matrices that products and other operators read: the name, and a description of those
    operators."""
    copies = transposed_pairs(model.graph)
    for name, value in model.graph.initializers.items():
        if value.const_value is None or value.const_value.size < SHARED_FROM_ELEMENTS:
            continue
        forms = [value, *(model.graph.initializers[copy] for copy, first in copies.items() if first == name)]
        ops = {use.node.op_type for form in forms for use in form.uses()}
        if ops.intersection(PRODUCTS) and ops.difference(PRODUCTS):
            yield name, ", ".join(sorted(ops.difference(PRODUCTS)))


def _constants(model: ir.Model) -> dict[str, int]:
    """Name -> size in bytes of every weight and large Constant of the model."""
    size_by_name: dict[str, int] = {}
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            size_by_name[name] = value.const_value.nbytes if value.const_value is not None else 0
        for node in graph:
            if node.op_type == "Constant" and not node.domain and "value" in node.attributes:
                size_by_name[str(node.outputs[0].name)] = node.attributes["value"].as_tensor().nbytes
    return size_by_name

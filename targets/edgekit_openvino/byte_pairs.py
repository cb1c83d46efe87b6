"""Bytes that an image input gives, as OpenVINO's CPU plugin computes on them without a step in between.

    x, uint8 -> Cast -> [Sub(m)] -> Q(1, m) -> DQ(1, m) -> Conv
        =>   x -> Cast -> [Sub(m)] -> FakeQuantize(-m to 255 - m, 256 levels) -> Conv

From the pair, its plugin makes a Convert to float and multiplies floats; from the FakeQuantize an integer
convolution that reads the bytes, layout included (2026.4, by its execution graph: YOLOX-nano's first
convolution takes 1.5 ms instead of 8).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.byte_pairs import held_bytes
from edgekit.compiler.model.rewriting import add_constant, nodes_of, replace_node

DOMAIN = "org.openvinotoolkit"
"""Of operators that OpenVINO's ONNX reader has beside the standard's."""


def with_fake_quantize(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which such pairs are FakeQuantize operators."""
    if all(held_bytes(node) is None for _, node in nodes_of(model, "QuantizeLinear")):
        return model
    copy = model.clone()
    copy.opset_imports[DOMAIN] = 1
    for _, node in nodes_of(copy, "QuantizeLinear"):
        stored = held_bytes(node)
        pairs = [use.node for use in node.outputs[0].uses()]
        if stored is None or any(pair.op_type != "DequantizeLinear" for pair in pairs):
            continue
        low, high = (
            add_constant(copy, np.array(end - stored[1], np.float32), f"{node.name}/{name}")
            for name, end in (("least", 0), ("greatest", 255))
        )
        for pair in pairs:
            inputs = [node.inputs[0], low, high, low, high]
            fake = ir.node("FakeQuantize", inputs, {"levels": 256}, domain=DOMAIN, name=pair.name)
            replace_node(pair, fake)
    return copy

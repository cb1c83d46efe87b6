"""Label a model with opset 20 if that says the same.

ONNX Runtime knows its fast forms by opset: 1.23, the last for CPython 3.10 and Intel Macs, reads opset 23 but
fuses no Conv of opset 22, and has no kernel for QuantizeLinear of 23. Milliseconds on it, one core, by the
label of the file; 1.31 gives the same for both, to the last bit:

                            opset 23    opset 20
    YOLOX-nano              29.6        22.7
    EfficientNet-Lite0      30.4        11.9
    ResNet-8 with Q/DQ      refused      0.45

20 and not 21, whose QuantizeLinear has output_dtype: ONNX Runtime 1.31 sets it wrongly when it moves Q/DQ
pairs on chips without VNNI, and refuses its own graph.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.lowering.opset_downgrade import with_opset

OLDER_OPSET = 20


def with_older_opset(model: ir.Model) -> ir.Model:
    """Return a copy of the model with opset 20, or the model itself if a node would change in it."""
    return with_opset(model, OLDER_OPSET) or model

"""Operators that ONNX does not define: whose they are, and how to do without."""

from __future__ import annotations

from collections.abc import Mapping

import onnx.defs
import onnx_ir as ir

from edgekit.compiler.model.contributed_shapes import CONTRIBUTED, is_loaded
from edgekit.compiler.model.plugin_functions import has_function

PLUGINS = frozenset(
    {
        *("CoordConvAC", "CropAndResizeDynamic", "DecodeBbox3DPlugin", "ModulatedDeformConv2d"),
        *("PillarScatterPlugin", "SingleStepLSTMPlugin", "TRTBatchedNMS", "TRTBatchedRotatedNMS"),
        *("VoxelGeneratorPlugin", "CustomEmbLayerNormPluginDynamic", "CustomFCPluginDynamic"),
        *("CustomGeluPluginDynamic", "CustomQKVToContextPluginDynamic", "CustomSkipLayerNormPluginDynamic"),
    }
)
"""TensorRT's plugins, and MMDeploy's, whose names do not end in _TRT:
https://github.com/NVIDIA/TensorRT/tree/release/10.3/plugin, mmdeploy's csrc/mmdeploy/backend_ops/tensorrt."""
DEFINED = ("", "ai.onnx", "ai.onnx.ml")


def is_plugin(node: ir.Node) -> bool:
    return is_private(node) and (
        node.domain.startswith("TRT") or node.op_type.endswith("_TRT") or node.op_type in PLUGINS
    )


def is_private(node: ir.Node) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return node.domain not in DEFINED or not onnx.defs.has(node.op_type, domain)


def way_out(node: ir.Node, opsets: Mapping[str, int]) -> tuple[str, str]:
    """Return whose a private op is, in words, and what to do about it.

    Args:
        opsets: Opset of each domain of the model, by which ONNX Runtime is asked for a kernel; empty if it
            was already.
    """
    if is_plugin(node):
        nms = "NMS" in node.op_type
        step = (
            "export the model without NMS, or cut it before that node"
            if nms
            else "export the model without it"
        )
        tensorrt = ", or build it for tensorrt" if has_function(node) else ""
        return "is a plugin of TensorRT alone", f"{step}{tensorrt}"
    ort = ", or build it for ort" if opsets and is_loaded(node, opsets) else ""
    if node.domain.startswith(CONTRIBUTED):
        return "is an operator of ONNX Runtime alone", (
            f"pass the model from before ONNX Runtime quantized or optimized it{ort}"
        )
    owner = (
        f"is in the private domain {node.domain}" if node.domain not in DEFINED else "is not defined by ONNX"
    )
    return owner, f"export the model without it, or with its definition as an ONNX function in the file{ort}"

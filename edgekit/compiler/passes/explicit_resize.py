"""Replaces keep_aspect_ratio_policy and half_pixel_symmetric of Resize by explicit scales.

    Resize<keep_aspect_ratio_policy="not_larger">(x: 4x6, sizes: 7x8)  =>  Resize(x, scales: 4/3, 4/3)
    Resize<half_pixel_symmetric>(x, scales: 2, 2)                      =>  Resize<half_pixel>(x, scales: 2, 2)

The policy takes the smallest (not_smaller: the largest) of size / length for all axes, and rounds scale *
length (ONNX Resize-19); an explicit scale rounds down, so it is used only if both agree. half_pixel_symmetric
corrects for rounding when scale * length is not an integer; otherwise it equals half_pixel. OpenVINO 2026.4
ignores the policy and has no half_pixel_symmetric.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    input_of,
    ints_of,
    node_pass,
    text_of,
)
from edgekit.tensor_spec import Array


@node_pass("Resize")
def explicit_resize(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite both; sizes and scales are weights now."""
    source, resized = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if source is None or resized is None:
        return False
    keeps = _keep_aspect(model, node, source, resized)
    return _symmetric(node, source, resized) or keeps


def _keep_aspect(model: ir.Model, node: ir.Node, source: tuple[int, ...], resized: tuple[int, ...]) -> bool:
    policy = text_of(node, "keep_aspect_ratio_policy", "stretch")
    sizes = array_of(input_of(node, 3))
    crops = text_of(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    if policy not in ("not_larger", "not_smaller") or sizes is None or crops:
        return False
    axes = [axis % len(source) for axis in ints_of(node, "axes", range(len(source)))]
    ratios = [np.float32(size) / np.float32(source[axis]) for size, axis in zip(sizes, axes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    scales: Array = np.ones(len(source), np.float32)
    scales[axes] = scale
    for factor, before, after in zip(scales, source, resized, strict=True):
        # Engines multiply in float32 or in float64.
        if not math.floor(factor * np.float32(before)) == math.floor(float(factor) * before) == after:
            return False
    for name in ("axes", "keep_aspect_ratio_policy"):
        node.attributes.pop(name, None)
    node.resize_inputs(3)
    node.replace_input_with(2, add_constant(model, scales, f"{node.outputs[0].name}/scales"))
    return True


def _symmetric(node: ir.Node, source: tuple[int, ...], resized: tuple[int, ...]) -> bool:
    if text_of(node, "coordinate_transformation_mode", "half_pixel") != "half_pixel_symmetric":
        return False
    if text_of(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return False  # its scales are another thing than size / length
    scales: Array = np.array(resized, np.float32) / np.array(source, np.float32)
    if input_of(node, 2) is not None:
        factors = array_of(node.inputs[2])
        if factors is None:
            return False
        scales[ints_of(node, "axes", range(len(source)))] = factors
    if not np.array_equal(scales * np.array(source, np.float32), np.array(resized, np.float32)):
        return False
    node.attributes["coordinate_transformation_mode"] = ir.AttrString(
        "coordinate_transformation_mode", "half_pixel"
    )
    return True

"""Resizing: the inverse of ops_resize.py."""

from __future__ import annotations

from typing import Any

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import need_rank, reads


def _resized(g: OnnxGraph, **attributes: Any) -> None:
    x, out = g.op.inputs[0], g.op.outputs[0]
    batch, height, width, channels = need_rank(g, out, 4)
    need_rank(g, x, 4)
    sizes = g.int64([batch, channels, height, width])
    inputs = [g.nchw(g.value(x)), "", "", sizes]
    options = g.op.options
    if options["align_corners"] and options["half_pixel_centers"]:
        raise UnreadableError(
            g.op, "it aligns corners and has centers of half pixels, which exclude each other"
        )
    mode = "asymmetric"
    if options["align_corners"]:
        mode = "align_corners"
    elif options["half_pixel_centers"]:
        mode = "half_pixel"
    y = g.node("Resize", inputs, coordinate_transformation_mode=mode, **attributes)
    g.set(out, g.nhwc(y))


@reads("RESIZE_BILINEAR")
def resize_bilinear(g: OnnxGraph, op: Op) -> None:
    """Resize in mode linear."""
    _resized(g, mode="linear")


@reads("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(g: OnnxGraph, op: Op) -> None:
    """Resize in mode nearest.

    TFLite takes floor(x * scale), with half_pixel_centers floor((x + 0.5) * scale), which is ONNX's
    half_pixel rounded up from halves, and with align_corners the nearest, up from halves
    (tensorflow/lite/kernels/internal/reference/resize_nearest_neighbor.h).
    """
    plain = not op.options["align_corners"] and not op.options["half_pixel_centers"]
    _resized(g, mode="nearest", nearest_mode="floor" if plain else "round_prefer_ceil")

"""ONNX's pads as Core ML takes them: before and after each axis, as far as windows reach."""

from __future__ import annotations

from typing import Any

from edgekit.compiler.lowering.sliding_windows import Window


def interleaved(frame: Window) -> dict[str, Any]:
    """The arguments ``pad_type`` and ``pad`` of a conv or pool."""
    pad = [n for pair in frame.pads for n in pair]
    return {"pad_type": "custom", "pad": pad} if any(pad) else {"pad_type": "valid"}

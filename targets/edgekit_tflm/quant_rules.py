"""What is computed on integers: all of TFLite's 8-bit specification, to the ends of the network.

TFLM's kernels follow the same specification as TFLite's, so the rows are those of the target ``tflite``; what
XNNPACK has instead of them, and what makes it fast, is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.target import registry
from edgekit.target.quant_rules import Rules

if TYPE_CHECKING:
    from edgekit.target.profile import Profile


def rules(profile: Profile) -> Rules:
    """Integers throughout: floats would be another processor's on an NPU, and slow on a microcontroller."""
    of_tflite = registry.compiler("tflite").TARGET.quantization_rules
    assert of_tflite is not None
    return replace(of_tflite(profile), integers=True, placements=("all",), weight_forms=())

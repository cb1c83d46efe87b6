"""Quantization rules of TFLM: all of TFLite's 8-bit specification, up to the network's inputs and outputs.

TFLM's kernels follow the same specification as TFLite's, so the rows are those of the target ``tflite``.
XNNPACK's alternatives and optimizations are left out.
"""

from __future__ import annotations

from dataclasses import replace

from edgekit.target import registry
from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Rules


def rules(profile: Profile) -> Rules:
    """Return rules: integers throughout. An NPU leaves floats to the CPU; they are slow on any MCU."""
    of_tflite = registry.compiler("tflite").TARGET.quantization_rules
    assert of_tflite is not None
    return replace(of_tflite(profile), integers=True, placements=("all",), weight_forms=())

"""Quantization rules of Core AI: those of Core ML, which drives the same Neural Engine, without palettes.

Apple publishes none for Core AI; its dialect has ``quantize`` and ``dequantize`` with the same scales. Not
measured on Apple hardware.
"""

from __future__ import annotations

from dataclasses import replace

from edgekit.target import registry
from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Rules

WEIGHT_FORMS = ("int8-weights",)
"""The converter writes no tables of values."""


def rules(profile: Profile) -> Rules:
    """Return the rules of ``coreml`` for this profile."""
    of_core_ml = registry.compiler("coreml").TARGET.quantization_rules
    assert of_core_ml is not None
    base_rules = of_core_ml(profile)
    forms = tuple(form for form in base_rules.weight_forms if form.name in WEIGHT_FORMS)
    return replace(base_rules, weight_forms=forms)

"""Placements: what each leaves in float."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.placement_presets import PLACEMENTS, floats_of, rules_of
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.target.quant_rules import Dtype
from tests.fixtures.graphs import Graph
from tests.fixtures.quant_rules import RULES

pytestmark = pytest.mark.needs_ort


def test_by_columns_depthwise_and_riders(tmp_path: Path) -> None:
    g = Graph({"x": (1, 16, 8, 8)})
    wide = g.conv("x", 8, 16, 3)  # 144 columns
    relu = g("Relu", wide)
    narrow = g.conv(relu, 8, 8, 3)  # 72
    depthwise = g.conv(narrow, 8, 8, 3, groups=8)  # 9
    total = g("Add", depthwise, relu)
    last = g.conv(total, 4, 8)  # 8
    model = g.model(tmp_path, last)
    expected = {
        "all": set(),
        "no riders": {total},
        "no depthwise": {depthwise, total},
        "64 columns": {depthwise, last, total},
        "128 columns": {narrow, depthwise, last, total},
        "128 columns and riders": {narrow, depthwise, last},
        "256 columns": {wide, relu, narrow, depthwise, last, total},
        "all, centred": set(),
        "no depthwise, centred": {depthwise},
        "all, 16 bits": set(),
    }
    assert {name: floats_of(name, find_kernels(model, RULES)) for name in PLACEMENTS} == expected


@pytest.mark.parametrize("target", ["ort", "openvino", "tflite"])
def test_a_target_names_placements_that_there_are(target: str) -> None:
    rules = resolve(find_profile(target)).rules
    assert rules is not None
    named = rules.placements
    assert named
    assert set(named) <= set(PLACEMENTS)


def test_activations_in_16_bits() -> None:
    pairs: tuple[tuple[Dtype, Dtype], ...] = (("int8", "int16"), ("uint8", "uint16"))
    for narrow, wide in pairs:
        own = replace(RULES, activations=narrow)
        assert rules_of("all, 16 bits", own).activations == wide
        assert rules_of("all", own).activations == narrow

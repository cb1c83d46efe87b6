"""A part of EdgeKit's conformance cases on ncnn; from a checkout of EdgeKit.

    python -m tests.conformance.chips ncnn conv pool norm

runs these families whole and writes tests/conformance/chips/ncnn.toml.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ncnn", reason="pip install ncnn")
pytest.importorskip("edgekit_ncnn", reason="pip install --no-deps samples/third_party_target")
pytest.importorskip("tests.conformance.chips", reason="not in a checkout of EdgeKit")

from edgekit_ncnn import converter

from edgekit.errors import MissingDependency
from tests.conformance import chips

try:
    converter.program()
except MissingDependency as missing:
    pytest.skip(str(missing), allow_module_level=True)

CHIP = chips.read_chip("ncnn")


def test_cases_are_answered_as_the_table_of_operators_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    keys = chips.sampled(CHIP, 16)
    assert keys
    found = chips.outcomes(keys, "ncnn", tmp_path)
    kinds = {key: getattr(outcome, "kind", str(outcome)) for key, outcome in found.items()}
    assert kinds == {key: CHIP.expected.of(key).kind for key in keys}

"""A key that ends its process costs itself alone."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conformance.in_children import in_children


def test_the_next_keys_run(tmp_path: Path) -> None:
    found = dict(in_children(_ends_at_b, ["a", "b", "c", "d"], "tflm", tmp_path))
    assert found.pop("b") is None
    assert str(found.pop("c")) == "KeyError: 'c'"
    assert found == {"a": "a on tflm", "d": "d on tflm"}


def _ends_at_b(key: str, column: str, folder: Path) -> str:
    if key == "b":
        os._exit(3)
    if key == "c":
        raise KeyError(key)
    return f"{key} on {column}"

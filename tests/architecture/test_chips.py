"""The core knows no chip: what is particular to one is in its target's package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHIPS = re.compile(
    r"rknn|rockchip|rk35\d\d|tflm|tflite.micro|ethos|\bvela\b|hexagon|qnn|\bhtp\b|\bncnn\b|pnnx|cortex-m|esp32",
    re.IGNORECASE,
)


def test_no_line_of_the_core_names_a_chip() -> None:
    files = [p for p in (ROOT / "edgekit").rglob("*") if p.suffix in (".py", ".toml", ".html")]
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if CHIPS.search(line)
    ]
    assert found == []
    assert len(files) > 100

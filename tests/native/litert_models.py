"""LiteRT's library in the installed wheel, and a bundle that it runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import edgekit
from edgekit.processing.card import parse_card
from tests.native.models import yolox_bundle


@cache
def litert_library() -> str:
    """Return the path of LiteRT's shared library in the installed wheel; skip where it has none."""
    litert = pytest.importorskip("ai_edge_litert")
    path = Path(litert.__file__).parent / "libLiteRt.so"
    if not path.is_file():
        pytest.skip("this wheel of ai-edge-litert has no libLiteRt.so")
    return str(path)


def litert_yolox(shared: Path, folder: Path) -> Path:
    """Build the shared YOLOX-nano for TFLite in a folder; return the bundle's path."""
    model = shared / "models" / "yolox_nano.onnx"
    card = parse_card(yolox_bundle(shared).card or {})
    return edgekit.build(model, targets=["tflite"], precision="fp32", card=card).save(
        folder / "yolox.edgekit"
    )

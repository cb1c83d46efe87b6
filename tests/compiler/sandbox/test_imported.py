"""A model is imported, and its card drafted, in a child; what the child says is checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.pipeline.import_onnx import import_model
from edgekit.compiler.sandbox import messages
from edgekit.compiler.sandbox.messages import Broken
from edgekit.compiler.sandbox.result_messages import (
    drafted_figures,
    imported_figures,
    parse_drafted,
    parse_imported,
)
from edgekit.errors import CrashError
from tests.fixtures import child_processes, models

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    """What the lowering to TFLite writes of a small network."""
    source = models.write(tmp_path, models.COLOUR_FINDER)
    bundle = edgekit.build(source, targets=["tflite"], trusted=True)
    (variant,) = bundle.variants
    path = tmp_path / "model.tflite"
    path.write_bytes(bundle.read(next(iter(variant.files.values()))))
    return path


@pytest.mark.needs_tflite
def test_an_imported_model_is_the_same(tflite: Path) -> None:
    contained, trusted = edgekit.import_model(tflite), edgekit.import_model(tflite, trusted=True)
    assert contained.imported.onnx == trusted.imported.onnx
    assert contained.text() == trusted.text()
    assert contained.as_json() == trusted.as_json()
    assert contained.compared.engine.startswith("LiteRT ")


def test_a_drafted_card_is_the_same(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.COLOUR_FINDER)
    contained, trusted = edgekit.draft_card(model), edgekit.draft_card(model, trusted=True)
    assert contained == trusted
    assert contained.guessed


def sent(figures: Any) -> Any:
    """Return a child's figures as the parent reads them."""
    return messages.parse_line(messages.as_line({"figures": figures}))["figures"]


@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("model_change", "source_change"),
    [
        ({}, {"importer_name": "nobody"}),
        ({}, {"importer_name": ["tflite"]}),
        ({"nodes": -1}, {}),
        ({}, {"notes": "much"}),
        ({}, {"notes": ["\x1b[2J"]}),
        ({"inputs": [["x", "float32", ["1"]]]}, {}),
        ({"inputs": [["x", "float32"]]}, {}),
        ({"compared": {"engine": "e"}}, {}),
        ({"more": 1}, {}),
        ({}, {"onnx": "other"}),
    ],
)
def test_figures_of_an_imported_model_are_checked(
    model_change: dict[str, Any], source_change: dict[str, Any], tflite: Path
) -> None:
    model, source = sent(imported_figures(import_model(tflite)))
    assert parse_imported([model, source], tflite, b"onnx").imported.onnx == b"onnx"
    with pytest.raises(Broken, match=r"^an imported model: "):
        parse_imported([{**model, **model_change}, {**source, **source_change}], tflite, b"onnx")
    for other in ([model], {"a": model, "b": source}, "ab", None, [model, 1]):
        with pytest.raises(Broken, match=r"^an imported model: "):
            parse_imported(other, tflite, b"onnx")


@pytest.mark.needs_tflite
@pytest.mark.parametrize("figure", ["max_abs", "relative_norm", "cosine", "limit_db"])
def test_an_output_is_compared_with_all_its_figures(figure: str, tflite: Path) -> None:
    model, source = sent(imported_figures(import_model(tflite)))
    model["compared"]["outputs"]["boxes"][figure] = None
    place = rf"imported\.compared\.outputs\.boxes\.{figure}"
    with pytest.raises(Broken, match=rf"^an imported model: {place}: None where a number is expected$"):
        parse_imported([model, source], tflite, b"")


@pytest.mark.parametrize(
    ("lines", "change"),
    [(["= ="], {}), (["title = 1"], {}), (1, {}), (None, {"guessed": [1]}), (None, {"inputs": []}),
     (None, {"more": 1})],
)  # fmt: skip
def test_a_drafted_card_is_checked(lines: Any, change: dict[str, Any], tmp_path: Path) -> None:
    draft = draft_card(models.write(tmp_path, models.COLOUR_FINDER))
    written, figures = sent(drafted_figures(draft))
    assert parse_drafted([written, figures], "model.onnx") == draft
    with pytest.raises(Broken, match=r"^a drafted card: "):
        parse_drafted([lines or written, {**figures, **change}], "model.onnx")


@pytest.mark.parametrize("verb", [edgekit.import_model, edgekit.draft_card])
def test_a_crash_is_one_error(
    verb: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An importer that is found by entry point crashes as a vendor's parser would."""
    folder = tmp_path / "packages"
    (folder / "crashing-1.dist-info").mkdir(parents=True)
    (folder / "crashing-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: crashing\nVersion: 1\n"
    )
    (folder / "crashing-1.dist-info" / "entry_points.txt").write_text(
        "[edgekit.importers]\naaa_crashing = a_crashing_importer\n"
    )
    (folder / "a_crashing_importer.py").write_text(
        "import os\n"
        "from edgekit.compiler.importers.contract import Importer\n"
        "def recognize(head, path):\n"
        "    return head == b'crash'\n"
        "def to_onnx(source, options):\n"
        "    os.abort()\n"
        "IMPORTER = Importer('crashing', ('.crash',), recognize, to_onnx)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    model = tmp_path / "m.crash"
    model.write_bytes(b"crash")
    before = child_processes.children()
    with pytest.raises(CrashError, match=r"^m\.crash: its process was killed by SIGABRT\n  at opening\n"):
        verb(model)
    assert child_processes.children() == before

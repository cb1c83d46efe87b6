"""Checks of a correct import."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.pipeline.import_onnx import ImportedModel


def is_right(found: ImportedModel, engine: str, outputs: Sequence[str]) -> None:
    assert found.compared.engine.startswith(engine)
    assert [spec.name for spec in found.outputs] == list(outputs)
    assert all(error.within_limit for error in found.compared.outputs.values())

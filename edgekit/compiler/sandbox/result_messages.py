"""An imported or smaller model, or a drafted card, as its child describes it: the ONNX file, and a message.

Everything in it is checked. The ONNX file is trusted no more than the model that it comes from: the next
reader opens it in a child of its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.compiler.card_inference.draft import Draft
from edgekit.compiler.compress.goal import ShrinkGoal
from edgekit.compiler.importers.conversion import Imported, importers
from edgekit.compiler.pipeline.import_onnx import ImportedModel
from edgekit.compiler.pipeline.shrunk_model import ShrunkModel
from edgekit.compiler.sandbox.messages import Broken
from edgekit.errors import CardError, EdgeKitError
from edgekit.processing.card import parse_card
from edgekit.system.formats.declared_json import decode, encode
from edgekit.system.formats.strict_tables import load_toml
from edgekit.tensor_spec import Json

NOT_SENT = ("onnx", "name", "source", "importer", "answers", "example")
"""Fields of ``Imported`` that the parent has itself, or that stay in the child."""


def imported_figures(imported_model: ImportedModel) -> list[Json]:
    imported = encode(Imported, imported_model.imported, *NOT_SENT)
    return [encode(ImportedModel, imported_model, "imported"), imported]


def parse_imported(message: Json, source: Path, onnx: bytes) -> ImportedModel:
    """Make an imported model of its description.

    Args:
        onnx: The file that the child wrote. It is trusted no more than the original.
    """
    try:
        figures, origin = message
        importer = importers()[origin["importer_name"]]
        supplied = dict(zip(NOT_SENT, (onnx, source.name, source, importer, None, None), strict=True))
        imported = decode(Imported, origin, "imported", **supplied)
        model: ImportedModel = decode(ImportedModel, figures, "imported", imported=imported)
        if min(model.nodes, model.opset, model.compared.samples) < 0:
            raise ValueError("a number is below 0")
    except (ValueError, KeyError, TypeError) as problem:
        raise Broken(f"an imported model: {problem}") from None
    return model


def drafted_figures(draft: Draft) -> list[Json]:
    """Describe a drafted card by the lines of its text: each fits a message's limit of one text."""
    return [draft.text.split("\n"), encode(Draft, draft, "text", "card")]


def parse_drafted(message: Json, name: str) -> Draft:
    """Make a drafted card of its text. Raises Broken."""
    try:
        lines, figures = message
        written = "\n".join(decode(list[str], lines, "draft"))
        table = load_toml(written, name, CardError)
        draft: Draft = decode(Draft, figures, "draft", text=written, card=None)
        return replace(draft, card=parse_card(table, draft.inputs, draft.outputs, location=name))
    except (EdgeKitError, ValueError, TypeError) as problem:
        raise Broken(f"a drafted card: {problem}") from None


def shrunk_figures(shrunk: ShrunkModel) -> Json:
    return encode(ShrunkModel, shrunk, "name", "onnx", "goal")


def parse_shrunk(message: Json, name: str, goal: ShrinkGoal, onnx: bytes) -> ShrunkModel:
    try:
        model: ShrunkModel = decode(ShrunkModel, message, "shrunk", name=name, goal=goal, onnx=onnx)
        if min(*model.multiplications, *model.weight_bytes, model.test_samples) < 0:
            raise ValueError("a number is below 0")
    except ValueError as problem:
        raise Broken(f"figures of a smaller model: {problem}") from None
    return model

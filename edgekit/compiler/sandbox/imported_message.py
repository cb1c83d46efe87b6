"""An imported model or a drafted card, as its child describes it: the ONNX file, and one message.

Nothing of it is believed before it is checked, as in shrunk_message.py.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.compiler.build.import_check import ImportCheck
from edgekit.compiler.build.import_onnx import ImportedModel
from edgekit.compiler.card_inference.draft import Draft
from edgekit.compiler.evaluate.verify import OutputError
from edgekit.compiler.importers.conversion import Imported, importers
from edgekit.compiler.sandbox.messages import Broken
from edgekit.errors import CardError, EdgeKitError, printable
from edgekit.processing.card import parse_card
from edgekit.system.formats.json_schema import ManifestError, list_of, map_of, nothing_or, record, text, whole
from edgekit.system.formats.toml_files import load_toml
from edgekit.tensor_spec import Json, TensorSpec

VALUES_LIMIT, NOTES_LIMIT, DIMENSIONS_LIMIT = 10_000, 1000, 16
_SPEC = record({"name": text, "dtype": text, "shape": list_of(whole(-1), DIMENSIONS_LIMIT)})
_COMPARED = record(
    {
        "engine": text,
        "not_run": text,
        "samples": whole(0),
        "outputs": map_of(text, list_of(nothing_or(text), 5), VALUES_LIMIT),
        "negligible": list_of(text, VALUES_LIMIT),
    }
)
_IMPORTED = record(
    {
        "source_sha256": text,
        "importer": text,
        "tools": map_of(text, text, NOTES_LIMIT),
        "notes": list_of(text, NOTES_LIMIT),
        "precision": text,
        "inputs": list_of(_SPEC, VALUES_LIMIT),
        "outputs": list_of(_SPEC, VALUES_LIMIT),
        "nodes": whole(0),
        "opset": whole(0),
        "compared": _COMPARED,
    }
)
_DRAFT = record(
    {
        "lines": list_of(text, VALUES_LIMIT),
        "guessed": list_of(text, VALUES_LIMIT),
        "inputs": list_of(_SPEC, VALUES_LIMIT),
        "outputs": list_of(_SPEC, VALUES_LIMIT),
    }
)
_FIGURES = ("max_abs", "relative_norm", "snr_db", "cosine", "limit_db")


def imported_figures(imported_model: ImportedModel) -> dict[str, Json]:
    """Describe an imported model. Floats are texts: JSON has no infinity."""
    imported, compared = imported_model.imported, imported_model.compared
    errors = {
        name: [None if (value := getattr(error, key)) is None else repr(float(value)) for key in _FIGURES]
        for name, error in compared.outputs.items()
    }
    return {
        "source_sha256": imported.source_sha256,
        "importer": imported.importer_name,
        "tools": dict(imported.tools),
        "notes": list(imported.notes),
        "precision": imported.precision,
        "inputs": [spec._asdict() for spec in imported_model.inputs],
        "outputs": [spec._asdict() for spec in imported_model.outputs],
        "nodes": imported_model.nodes,
        "opset": imported_model.opset,
        "compared": {
            "engine": compared.engine,
            "not_run": compared.not_run,
            "samples": compared.samples,
            "outputs": errors,
            "negligible": sorted(compared.negligible),
        },
    }


def parse_imported(message: Json, source: Path, onnx: bytes) -> ImportedModel:
    """Make an imported model of its description.

    Args:
        message: From the child.
        source: Path of the original.
        onnx: The file that the child wrote. It is trusted no more than the original.

    Raises:
        Broken: the description has another form.
    """
    try:
        _IMPORTED(message, "imported")
        importer = importers()[message["importer"]]
        imported = Imported(
            onnx, source.name, source, printable(message["source_sha256"]), importer, message["importer"],
            {printable(name): printable(version) for name, version in message["tools"].items()},
            tuple(map(printable, message["notes"])), printable(message["precision"]),
        )  # fmt: skip
        inputs, outputs = (tuple(map(_spec, message[key])) for key in ("inputs", "outputs"))
        compared = _compared(message["compared"])
        return ImportedModel(imported, inputs, outputs, message["nodes"], message["opset"], compared)
    except (ManifestError, ValueError, KeyError) as problem:
        raise Broken(f"an imported model: {problem}") from None


def _compared(message: Json) -> ImportCheck:
    errors = {}
    for name, row in message["outputs"].items():
        max_abs, relative_norm, snr_db, cosine, limit_db = (figure and float(figure) for figure in row)
        if None in (max_abs, relative_norm, cosine, limit_db):
            raise ValueError("a number is missing")
        errors[printable(name)] = OutputError(max_abs, relative_norm, snr_db, cosine, limit_db)
    engine, not_run = printable(message["engine"]), printable(message["not_run"])
    negligible = frozenset(map(printable, message["negligible"]))
    return ImportCheck(engine, not_run, message["samples"], errors, negligible)


def _spec(message: Json) -> TensorSpec:
    return TensorSpec(printable(message["name"]), printable(message["dtype"]), tuple(message["shape"]))


def drafted_figures(draft: Draft) -> dict[str, Json]:
    """Describe a drafted card by its text."""
    specs = {"inputs": draft.inputs, "outputs": draft.outputs}
    written = {key: [spec._asdict() for spec in group] for key, group in specs.items()}
    return {"lines": draft.text.split("\n"), "guessed": list(draft.guessed), **written}


def parse_drafted(message: Json, name: str) -> Draft:
    """Make a drafted card of its text. Raises Broken."""
    try:
        _DRAFT(message, "draft")
        written = "\n".join(message["lines"])
        inputs, outputs = (tuple(map(_spec, message[key])) for key in ("inputs", "outputs"))
        card = parse_card(load_toml(written, name, CardError), inputs, outputs, location=name)
        return Draft(written, card, tuple(map(printable, message["guessed"])), inputs, outputs)
    except (ManifestError, EdgeKitError, ValueError) as problem:
        raise Broken(f"a drafted card: {problem}") from None

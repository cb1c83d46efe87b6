"""Model card of a bundle for the Hugging Face Hub: a README made from the bundle's evidence.

Its metadata follow https://huggingface.co/docs/hub/model-cards. The same bundle and address give the same
bytes.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from edgekit.bundle.advice import advice
from edgekit.bundle.report import (
    basis,
    checked_evidence,
    columns_and_rows,
    kept_of,
    model_notes,
    shared_notes,
    why_rejected,
)
from edgekit.errors import index_line
from edgekit.processing.card import parse_card
from edgekit.processing.generation import is_generation
from edgekit.processing.processing import predicts_in_parts
from edgekit.system.formats.plain_text import escaped, markdown_table

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

MARK = "<!-- written by edgekit release publish --hub"
"""Beginning of a comment by which a later publication recognizes a README that it may replace."""
PIPELINES = {
    "classify": {
        "image": "image-classification", "audio": "audio-classification", "text": "text-classification",
    },
    "depth": {"image": "depth-estimation"},
    "detect": {"image": "object-detection"},
    "embed": {"image": "image-feature-extraction", "text": "feature-extraction"},
    "generate": {"": "text-generation"},
    "image-to-image": {"image": "image-to-image"},
    "landmarks": {"image": "keypoint-detection"},
    "matting": {"image": "image-segmentation"},
    "obb": {"image": "object-detection"},
    "pose": {"image": "keypoint-detection"},
    "rank": {"text": "text-ranking"},
    "read-text": {"image": "image-to-text"},
    "segment": {"image": "image-segmentation"},
    "segment-instances": {"image": "image-segmentation"},
    "text2text": {"text": "text2text-generation"},
    "transcribe": {"audio": "automatic-speech-recognition"},
    "voice-activity": {"audio": "voice-activity-detection"},
}  # fmt: skip
"""Task of a card -> kind of its input -> the hub's name of the task. "" means of any input."""
LICENSES = {
    **{name: name.lower() for name in (
        "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "CC0-1.0", "CC-BY-4.0",
        "CC-BY-SA-4.0", "CC-BY-NC-4.0",
    )},
    "GPL-2.0-only": "gpl-2.0",
    **{f"{name}-{form}": name.lower() for name in ("GPL-3.0", "LGPL-3.0", "AGPL-3.0")
       for form in ("only", "or-later")},
}  # fmt: skip
"""SPDX id of a license -> the hub's name."""


def model_card(hub: Any, bundle: Bundle, address: str, file: str, sha256: str) -> str:
    """Return the README of a bundle.

    Args:
        address: Address ``hf://OWNER/NAME`` of its repository.
        sha256: SHA-256 of the file, as hexadecimal digits.

    Raises:
        BundleError: its evidence is not what a build writes.
    """
    with checked_evidence(bundle.name):
        manifest, about = bundle.manifest, _about(bundle)
        source = manifest["source"]
        title = str((manifest["card"] or {}).get("title") or source["file"])
        accepted = kept_of(bundle.variants)
        rejected = [v for v in bundle.variants if v.rejected]
        notes = [escaped(note) for note in model_notes(manifest)]
        notes += [
            f"{escaped(', '.join(names))}: {escaped(note)}" for note, names in shared_notes(accepted).items()
        ]
        notes += [f"{escaped(v.name)} was {kind}: {escaped(reason)}" for v in rejected
                  for kind, reason in [why_rejected(v)]]  # fmt: skip
        tensors = [("input", spec) for spec in bundle.inputs] + [("output", spec) for spec in bundle.outputs]
        rows = [(side, spec.name, spec.dtype, "x".join(map(str, spec.shape))) for side, spec in tensors]
        parts = [
            f"---\n{_metadata(hub, bundle).to_yaml()}\n---",
            f"{MARK}; a README without this line is kept -->",
            f"# {escaped(title)}",
            *([escaped(str(about["description"]))] if about.get("description") else []),
            " ".join(escaped(line) for line in advice(manifest, bundle.variants)[:-1]),
            "## Variants",
            markdown_table(*columns_and_rows(accepted)),
            f"{_sentence(basis(manifest, accepted))} The last column says which variants could not be run.",
            *(["\n".join(f"- {note}" for note in notes)] if notes else []),
            "## Use",
            f"Install EdgeKit ({index_line('hub')}) and the engine of a variant, then:",
            "\n".join(f"    {line}" for line in _commands(bundle, address, file)),
            "## Inputs and outputs",
            markdown_table(("", "name", "type", "shape"), rows),
            "## Origin",
            "\n".join(
                f"- {line}"
                for line in (
                    f"Model: {escaped(str(source.get('repository') or source['file']))}, "
                    f"SHA-256 {escaped(str(source['sha256']))}",
                    f"License: {escaped(str(about['license'])) if about.get('license') else 'not stated'}",
                    f"Bundle: {escaped(file)}, SHA-256 {sha256}, built by edgekit "
                    f"{escaped(str(manifest['edgekit']))}",
                )
            ),
        ]
        return "\n\n".join(parts) + "\n"


def _about(bundle: Bundle) -> dict[str, Any]:
    card = bundle.manifest["card"] or {}
    return card["about"] if isinstance(card.get("about"), dict) else {}


def _metadata(hub: Any, bundle: Bundle) -> Any:
    card, about = bundle.manifest["card"] or {}, _about(bundle)
    kinds = [str(entry.get("kind")) for entry in (card.get("inputs") or {}).values()]
    by_kind = PIPELINES.get(str((card.get("task") or {}).get("kind")), {})
    repository = str(bundle.manifest["source"].get("repository") or "")
    return hub.ModelCardData(
        library_name="edgekit",
        license=LICENSES.get(str(about.get("license")), "other") if about.get("license") else None,
        pipeline_tag=next((by_kind[kind] for kind in (*kinds, "") if kind in by_kind), None),
        tags=["edgekit", *sorted({v.target for v in kept_of(bundle.variants)})],
        base_model=repository.removeprefix("hf://").partition("@")[0] or None,
    )


def _commands(bundle: Bundle, address: str, file: str) -> list[str]:
    if is_generation(bundle.card):
        run = f"edgekit generate {address} -p Hello"
    elif bundle.card is not None and predicts_in_parts(parse_card(bundle.card)):
        run = f"edgekit run {address} -i FILE"
    else:
        run = f"edgekit run {address} " + " ".join(f"-i {quote(s.name)}=FILE" for s in bundle.inputs)
    return [f"edgekit inspect {address}", run, f"hf download {address.removeprefix('hf://')} {quote(file)}"]


def _sentence(text: str) -> str:
    return escaped(f"{text[0].upper()}{text[1:]}.")

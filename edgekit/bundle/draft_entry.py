"""The draft of a language model: a smaller decoder of the same tokens, in ``extensions.draft`` of a manifest.

    {"title": "SmolLM2-135M", "architecture": "llama", "parameters": 134515008, "sha256": "...",
     "agreement": 0.62, "tokens": 2449, "logits": "golden/draft-logits.npy", "variants": [...]}

Its guesses are verified by the bundle's own decoder, so it changes no text. Who does not know the key reads
the bundle as if it had no draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edgekit.bundle.manifest import DIGEST, VARIANT, VARIANTS_LIMIT, check_joined, plain_path
from edgekit.bundle.variant import Variant
from edgekit.errors import BundleError
from edgekit.system.formats.json_schema import ManifestError, list_of, record, text, whole
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Json

KEY = "draft"


class DraftEntry(NamedTuple):
    """A bundle's draft.

    Attributes:
        agreement: Share, 0 to 1, of the build's text at which its likeliest next token is the large model's.
        logits: Entry of its float reference's logits after the golden prompts.
        variants: Its decoders, for the targets of the bundle; rejected ones too.
    """

    title: str
    architecture: str
    parameters: int
    agreement: float
    tokens: int
    logits: str
    variants: tuple[Variant, ...]


def _share(value: Json, location: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ManifestError(f"{location}: {brief(value)} where a number from 0 to 1 is expected")


_SCHEMA = record(
    {
        "title": text,
        "architecture": text,
        "parameters": whole(1),
        "sha256": DIGEST,
        "agreement": _share,
        "tokens": whole(1),
        "logits": plain_path,
        "variants": list_of(VARIANT, VARIANTS_LIMIT),
    }
)


def draft_of(name: str, manifest: Mapping[str, Json]) -> DraftEntry | None:
    """Return the draft of a bundle, or None.

    Raises:
        BundleError: it is malformed, or an entry that it names is not there.
    """
    extension = (manifest.get("extensions") or {}).get(KEY)
    if extension is None:
        return None
    location = f"extensions.{KEY}"
    try:
        _SCHEMA(extension, location)
        entries = {entry["name"]: entry["size"] for entry in manifest["entries"]}
        for file in [extension["logits"], *(e for v in extension["variants"] for e in v["files"].values())]:
            if file not in entries:
                raise ManifestError(f"{location}: entry {brief(file)} does not exist")
        for i, variant in enumerate(extension["variants"]):
            check_joined(variant, entries, f"{location}.variants[{i}]")
    except ManifestError as problem:
        raise BundleError(f"{name} has a draft that cannot be used\n  {problem}; build it again") from None
    variants = tuple(Variant(**variant) for variant in extension["variants"])
    rest = {key: extension[key] for key in DraftEntry._fields if key != "variants"}
    return DraftEntry(**rest, variants=variants)


def draft_evidence(manifest: Mapping[str, Json]) -> tuple[str, tuple[Variant, ...]]:
    """Return a report's text on the draft, and its variants; both empty without a draft. A build wrote it."""
    draft = (manifest.get("extensions") or {}).get(KEY)
    if draft is None:
        return "", ()
    summary = (
        f"{draft['title']}, {draft['parameters'] / 1e6:.1f} M parameters: its likeliest token is the model's"
        f" at {draft['agreement']:.3f} of {draft['tokens']} tokens"
    )
    return summary, tuple(Variant(**variant) for variant in draft["variants"])

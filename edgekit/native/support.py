"""Parts of a bundle that libedgekit can use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant

ORT, ORT_MODEL = "ort", "model.onnx"
"""Target of its adapter of ONNX Runtime, and the only file of a variant that the adapter loads."""
DECODERS = {"classify": ("logits", "probabilities"), "detect": ("yolox", "yolov5", "yolov8", "end2end")}
"""Tasks of a picture and their decoders."""
SOUND_DECODERS = {"classify": DECODERS["classify"], "voice-activity": ("probability",)}
"""Tasks of a sound and their decoders."""


def runnable(bundle: Bundle, targets: Collection[str]) -> list[Variant]:
    """Return the variants that a session may run with engines for ``targets``."""
    return [
        variant
        for variant in bundle.variants
        if variant.usable
        and variant.target in targets
        and (variant.target != ORT or set(variant.files) == {ORT_MODEL})
    ]


def predicts(bundle: Bundle, *, sounds: bool = False) -> bool:
    """Return whether the card's input is one picture, and its task one that is decoded.

    Args:
        bundle: A bundle.
        sounds: Whether one sound, with constants and states beside it, is another such input.
    """
    card = bundle.card or {}
    inputs, task = card.get("inputs"), card.get("task")
    kinds = [row.get("kind") for row in inputs.values()] if isinstance(inputs, Mapping) else []
    if sounds and kinds.count("audio") == 1 and set(kinds) <= {"audio", "tensor"}:
        decoders: Mapping[str, tuple[str, ...]] = SOUND_DECODERS
    else:
        decoders = DECODERS if kinds == ["image"] else {}
    return isinstance(task, Mapping) and task.get("decode") in decoders.get(str(task.get("kind")), ())


def described(bundle: Bundle) -> str:
    """Return the names and targets of all variants, for an error."""
    return ", ".join(f"{variant.name} ({variant.target})" for variant in bundle.variants) or "none"

"""Parts of a bundle that libedgekit can use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant

ORT, LITERT, OPENVINO = "ort", "tflite", "openvino"
MODELS = {ORT: "model.onnx", LITERT: "model.tflite"}
"""Target of an adapter -> the only file of a variant that it loads."""
CLASSIFIERS = ("logits", "probabilities")
DECODERS: Mapping[str, Mapping[str, Collection[str]]] = {
    "image": {"classify": CLASSIFIERS, "detect": ("yolox", "yolov5", "yolov8", "end2end")},
    "audio": {"classify": CLASSIFIERS, "voice-activity": ("probability",)},
}
"""Kind of input -> tasks and their decoders."""


def runnable(bundle: Bundle, targets: Collection[str]) -> list[Variant]:
    """Return the variants that a session may run with engines for ``targets``."""
    return [
        variant
        for variant in bundle.variants
        if variant.usable
        and variant.target in targets
        and (variant.target not in MODELS or set(variant.files) == {MODELS[variant.target]})
    ]


def predicts(bundle: Bundle) -> str:
    """Return the kind of input that the library prepares and whose task it decodes, "image" or "audio"; "" if
    there is none. Beside it, the card may have constants and states.
    """
    card = bundle.card or {}
    inputs, states, task = card.get("inputs"), card.get("states"), card.get("task")
    if not isinstance(inputs, Mapping) or not isinstance(task, Mapping):
        return ""
    carried = states if isinstance(states, Mapping) else {}
    fed = [row for name, row in inputs.items() if name not in carried and "value" not in row]
    kind = str(fed[0].get("kind")) if len(fed) == 1 else ""
    decoders = DECODERS.get(kind, {}).get(str(task.get("kind")), ())
    return kind if task.get("decode") in decoders else ""


def described(bundle: Bundle) -> str:
    """Return the names and targets of all variants, for an error."""
    return ", ".join(f"{variant.name} ({variant.target})" for variant in bundle.variants) or "none"

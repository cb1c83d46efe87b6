"""Recognizes classifiers: one row of numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import (
    KERAS,
    NO_PICTURE,
    PADDLE_CLAS,
    PADDLE_TEXT_LINE,
    TORCHVISION,
    ULTRALYTICS_CLASSIFY,
    Habits,
)
from edgekit.compiler.card_inference.labels import label_line
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import (
    Draftable,
    ImageShape,
    Recognized,
    Recognizers,
    TextOutputs,
)

RATE_HZ = 16_000
SMALL = 100
"""Height and width below which a photograph shrinks so much that a filter which does not widen skips most of
its pixels."""
MLPERF_KEYWORDS = (
    "down",
    "go",
    "left",
    "no",
    "off",
    "on",
    "right",
    "stop",
    "up",
    "yes",
    "silence",
    "unknown",
)
MLPERF_MFCC = {
    "kind": "mfcc", "frame": 480, "hop": 320, "power": 1, "mels": 40, "fmin": 20, "fmax": 4000,
    "triangles": "mel", "log": "ln", "offset": 1e-6, "coefficients": 10, "dct": "htk",
}  # fmt: skip
"""mlcommons/tiny, benchmark/training/keyword_spotting/get_dataset.py."""


def recognize_classifier(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one output [1, classes], other dimensions 1. With a softmax at its end, its values are
    probabilities."""
    if len(facts.outputs) != 1:
        return None
    output = facts.outputs[0]
    classes = max(output.shape, default=0)
    if classes < 2 or math.prod(output.shape) != classes:
        return None
    ops = facts.activations(output.name)
    probable = bool(ops & {"Softmax", "Sigmoid", "HardSigmoid"})
    reason = f"{classes} numbers, {'a ' + sorted(ops)[-1] if probable else 'no softmax'} at the end"
    lines = [line for line in (label_line(facts.metadata, classes, output=output.name),) if line]
    if output.dtype in ("int8", "uint8") and (quantized := facts.quantization(output.name)):
        scale, zero = quantized
        lines += [CardLine("scale", scale, "the graph's last QuantizeLinear"), CardLine("zero_point", zero)]
    decode = "probabilities" if probable else "logits"
    # A thousand numbers are classes; a few may be measurements too.
    guessed = not probable and classes not in (1000, 1001, len(facts.source.files.labels))
    return Recognized(
        "classify", decode, {"scores": output.name}, reason, habits_of(facts, image), guessed, lines
    )


def habits_of(facts: GraphFacts, image: ImageShape) -> Habits:
    """Return the image preprocessing of classifiers and embeddings of this origin."""
    if facts.is_ultralytics:
        return ULTRALYTICS_CLASSIFY
    if facts.is_paddle:
        is_line = None in facts.source.inputs[image.name][2:] or image.width >= 2 * image.height
        return PADDLE_TEXT_LINE if is_line else PADDLE_CLAS
    if image.layout == "NCHW":
        return TORCHVISION
    return replace(KERAS, antialias=max(image.height, image.width) < SMALL)


def recognize_text_classifier(facts: GraphFacts, outputs: TextOutputs) -> Recognized | None:
    """Recognize a text classifier: a few numbers for a text."""
    if len(outputs.vectors) != 1 or outputs.pooled:
        return None
    output = outputs.vectors[0]
    probable = "Softmax" in facts.activations(output.name)
    lines = [line for line in (label_line(facts.metadata, output.shape[1]),) if line]
    reason = f"{output.shape[1]} numbers for a text"
    decode = "probabilities" if probable else "logits"
    guessed = output.shape[1] != len(facts.source.files.labels)
    return Recognized("classify", decode, {"scores": output.name}, reason, NO_PICTURE, guessed, lines)


def recognize_keywords(facts: GraphFacts) -> Draftable | None:
    """MLPerf Tiny's keyword spotting: 49 frames of 10 MFCC, 12 classes."""
    if len(facts.inputs) != 1 or len(facts.outputs) != 1:
        return None
    spec, output = facts.inputs[0], facts.outputs[0]
    if spec.shape != (1, 49, 10, 1) or math.prod(output.shape) != len(MLPERF_KEYWORDS):
        return None
    lines = [
        CardLine("kind", "audio", "49 frames of 10 features: MLPerf Tiny's keyword spotting"),
        CardLine("shape", spec.shape, "the model's own"),
        CardLine("rate", RATE_HZ, "MLPerf Tiny's, as the next lines", True),
        CardLine("window", RATE_HZ),
        CardLine("hop", RATE_HZ // 2),
        CardLine("normalize", "max"),
        CardLine("features", MLPERF_MFCC),
    ]
    if spec.dtype != "float32":
        return None
    probable = "Softmax" in facts.activations(output.name)
    task = Recognized(
        "classify", "probabilities" if probable else "logits", {"scores": output.name}, "12 classes of words",
        NO_PICTURE, lines=[CardLine("labels", MLPERF_KEYWORDS, "MLPerf Tiny's order", guessed=True)],
    )  # fmt: skip
    return Draftable({spec.name: lines}, task, {})


RECOGNIZERS = Recognizers(
    pictures={420: recognize_classifier},
    texts={120: recognize_text_classifier},
    sounds={120: recognize_keywords},
)

"""Recognizes classifiers and embeddings: one row of numbers."""

from __future__ import annotations

import math
from dataclasses import replace

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.image_habits import (
    ARCFACE,
    KERAS,
    PADDLE_CLAS,
    PADDLE_TEXT_LINE,
    TORCHVISION,
    ULTRALYTICS_CLASSIFY,
    Habits,
)
from edgekit.compiler.card_inference.labels import label_line, names_in
from edgekit.compiler.card_inference.lines import Line
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized


def recognize_classifier(facts: Facts, image: ImageShape) -> Recognized | None:
    """One output [1, classes], other dimensions 1; with a softmax at its end they are probabilities."""
    if len(facts.outputs) != 1:
        return None
    output = facts.outputs[0]
    classes = max(output.shape, default=0)
    if classes < 2 or math.prod(output.shape) != classes:
        return None
    ops = facts.activations(output.name)
    probable = bool(ops & {"Softmax", "Sigmoid", "HardSigmoid"})
    why = f"{classes} numbers, {'a ' + sorted(ops)[-1] if probable else 'no softmax'} at the end"
    lines = [line for line in (label_line(facts.metadata, classes, output=output.name),) if line]
    if output.dtype in ("int8", "uint8") and (quantized := facts.quantization(output.name)):
        scale, zero = quantized
        lines += [Line("scale", scale, "the graph's last QuantizeLinear"), Line("zero_point", zero)]
    decode = "probabilities" if probable else "logits"
    # A thousand numbers are classes; a few may be measurements too.
    guessed = not probable and classes not in (1000, 1001)
    return Recognized("classify", decode, {"scores": output.name}, why, _habits(facts, image), guessed, lines)


SMALL = 100
"""Height and width below which a photograph shrinks so much that a filter which does not widen skips most of
its pixels."""
EMBEDDINGS = (64, 128, 256, 384, 512, 768, 1024, 1280, 2048)
"""Lengths of vectors that networks are trained to give; few data sets have as many classes."""


def recognize_embedding(facts: Facts, image: ImageShape) -> Recognized | None:
    """One vector of such a length without a softmax."""
    if len(facts.outputs) != 1 or names_in(facts.metadata):
        return None
    output = facts.outputs[0]
    length = max(output.shape, default=0)
    if length not in EMBEDDINGS or math.prod(output.shape) != length:
        return None
    if facts.activations(output.name) & {"Softmax", "Sigmoid"}:
        return None
    habits = ARCFACE if (image.height, image.width) == (112, 112) else _habits(facts, image)
    why = f"a vector of {length} numbers without a softmax"
    return Recognized("embed", "vector", {"embedding": output.name}, why, habits, guessed=True)


def _habits(facts: Facts, image: ImageShape) -> Habits:
    if facts.is_ultralytics:
        return ULTRALYTICS_CLASSIFY
    if facts.is_paddle:
        is_line = None in facts.source.inputs[image.name][2:] or image.width >= 2 * image.height
        return PADDLE_TEXT_LINE if is_line else PADDLE_CLAS
    if image.layout == "NCHW":
        return TORCHVISION
    return replace(KERAS, antialias=max(image.height, image.width) < SMALL)

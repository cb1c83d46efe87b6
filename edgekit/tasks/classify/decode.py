"""Classes of a whole image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.processing.predictions.classify import Classes
from edgekit.processing.task_decoder import Decoder, Outputs, at_least
from edgekit.tensor_spec import Array

ROUNDED = 0.02
"""Largest error of a probability, or of their sum, of a model that was quantized to 8 bits."""


@dataclass(frozen=True)
class ClassifyOptions:
    """Options for decoding class scores.

    Attributes:
        top: Maximum number of classes in a prediction.
        scale: Integer outputs: score = (value - zero_point) x scale.
        zero_point: Integer outputs: see ``scale``.
    """

    top: int = 5
    scale: float = 1.0
    zero_point: int = 0

    def __post_init__(self) -> None:
        at_least(1, top=self.top)
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"scale is {self.scale:g}; it must be above 0")


def classify_logits(
    outputs: Outputs, options: ClassifyOptions, placed: object, labels: Sequence[str] = ()
) -> Classes:
    """``scores`` [1, classes] before softmax."""
    scores = _real(outputs["scores"], options)
    powers = np.exp(scores - scores.max())
    return _best(powers / powers.sum(), options, labels)


def classify_probabilities(
    outputs: Outputs, options: ClassifyOptions, placed: object, labels: Sequence[str] = ()
) -> Classes:
    """``scores`` [1, classes], already 0 to 1."""
    return _best(_real(outputs["scores"], options), options, labels)


def not_logits(outputs: Outputs, options: ClassifyOptions) -> str | None:
    """Return why scores that sum to 1 are not logits: a second softmax would flatten them."""
    scores = _real(outputs["scores"], options)
    if scores.size < 2 or scores.min() < 0 or abs(float(scores.sum()) - 1) > ROUNDED:
        return None
    return "its scores are 0 to 1 and sum to 1; use decode = 'probabilities'"


def not_probabilities(outputs: Outputs, options: ClassifyOptions) -> str | None:
    """Return why scores outside 0 to 1 are not probabilities."""
    scores = _real(outputs["scores"], options)
    if scores.size == 0 or (scores.min() >= -ROUNDED and scores.max() <= 1 + ROUNDED):
        return None
    fix = "use decode = 'logits'"
    if outputs["scores"].dtype.kind != "f":
        fix += ", or set scale and zero_point as the output was quantized"
    return f"its scores go from {scores.min():.3g} to {scores.max():.3g}, not 0 to 1; {fix}"


def _real(scores: Array, options: ClassifyOptions) -> Array:
    real = scores.reshape(-1).astype(np.float32)
    return (real - np.float32(options.zero_point)) * np.float32(options.scale)


def _best(scores: Array, options: ClassifyOptions, labels: Sequence[str]) -> Classes:
    order = np.argsort(-scores, kind="stable")[: options.top]
    return Classes(order, scores[order], labels)


_CLASSES = ("scores", lambda shape, options: math.prod(shape))
DECODERS: Mapping[str, Decoder] = {
    "logits": Decoder(ClassifyOptions, classify_logits, ("scores",), classes=_CLASSES, misfit=not_logits),
    "probabilities": Decoder(
        ClassifyOptions, classify_probabilities, ("scores",), classes=_CLASSES, misfit=not_probabilities
    ),
}

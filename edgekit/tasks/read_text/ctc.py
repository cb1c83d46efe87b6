"""Text recognition: connectionist temporal classification, read greedily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.read_text import TextLine
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class CtcOptions:
    """Options of CTC decoding.

    Attributes:
        blank: Class that separates characters: the ``first`` or the ``last``.
        space: Whether the class after the labels is a space, which PaddleOCR adds with ``use_space_char``.
        logits: Whether the output is before softmax.
    """

    blank: str = "first"
    space: bool = False
    logits: bool = False

    def __post_init__(self) -> None:
        if self.blank not in ("first", "last"):
            raise ValueError(f"blank is {self.blank!r}; it must be 'first' or 'last'")


def read_text(outputs: Outputs, options: CtcOptions, placed: object, labels: Sequence[str] = ()) -> TextLine:
    """``scores`` [1, steps, classes] or [steps, 1, classes]; labels are the characters, in their order.

    The best class of each step; repeated ones count once, the blank not at all: Graves et al., Connectionist
    Temporal Classification, 2006, 3.2, and PaddleOCR's ``CTCLabelDecode``. A label without text is a space.
    """
    scores = outputs["scores"]
    if scores.ndim != 3 or 1 not in scores.shape[:2] or not scores.size:
        raise EngineError(f"scores of text are [1, steps, classes], but the output is {list(scores.shape)}")
    steps = scores.reshape(-1, scores.shape[2])
    characters = len(labels) + options.space
    if characters + 1 != steps.shape[1]:
        spaced = " and a space" if options.space else ""
        raise EngineError(
            f"the output has {steps.shape[1]} classes, but {len(labels)} labels{spaced} with the blank make "
            f"{characters + 1}; correct labels or space in the card"
        )
    best = steps.argmax(axis=1)
    blank = 0 if options.blank == "first" else characters
    is_character = best != blank
    is_character[1:] &= best[1:] != best[:-1]
    indices = np.flatnonzero(is_character)
    confidences = _probabilities(steps[indices], best[indices], options.logits)
    numbers = (best[indices] - (options.blank == "first")).tolist()
    text = "".join((labels[number] if number < len(labels) else "") or " " for number in numbers)
    positions = ((indices + 0.5) / len(steps)).astype(np.float32)
    return TextLine(text, float(confidences.mean()) if len(confidences) else 0.0, confidences, positions)


def _probabilities(rows: Array, best: Array, logits: bool) -> Array:
    """Return the probability of each row's best class, float32."""
    values = rows[np.arange(len(rows)), best].astype(np.float32)
    if not logits:
        return values
    ones: Array = 1 / np.exp(rows - values[:, None]).sum(axis=1)
    return ones.astype(np.float32)


def _classes(shape: tuple[int, ...], options: CtcOptions) -> int:
    return shape[-1] - 1 - int(options.space)


DECODERS: Mapping[str, Decoder] = {
    "ctc": Decoder(CtcOptions, read_text, ("scores",), classes=("scores", _classes))
}

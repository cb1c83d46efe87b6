"""Search for a card with which the model works better on labelled samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_score import LabelScore, right_by_sample, score_on_labels
from edgekit.compiler.evaluate.labels import Label, find_labels, place_labels
from edgekit.compiler.evaluate.samples import FileSamples, read_sample, spread
from edgekit.compiler.model.reference import Reference
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.inputs.image import Colour, ImageInput, Resize
from edgekit.runtime.clopper_pearson import binomial_cdf
from edgekit.tensor_spec import Array, TensorSpec

RESIZE_MODES: tuple[Resize, ...] = ("stretch", "letterbox", "center-crop")
TRIED_SAMPLES = 16
"""Maximum number of samples that each line of another card is tried on."""
COMPARED_SAMPLES = 128
"""Maximum number of labelled samples that a better card is looked for on. The other order of colours of a
YOLOX-nano is found in 27, 63, 88 and 97 % of draws of 32, 64, 96 and 128 of coco128's photographs."""
BETTER_P = 0.05
"""p of the sign test, times the number of cards that are tried, below which another card is better."""
STANDARD_PIXELS = (
    ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    ((0.0, 0.0, 0.0), (255.0, 255.0, 255.0)),
    ((127.5, 127.5, 127.5), (127.5, 127.5, 127.5)),
    ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
)
"""Mean and std that most models are trained with: 0 to 255, 0 to 1, -1 to 1, ImageNet's."""

Outputs = Sequence[Mapping[str, Array]]


class _Compared(NamedTuple):
    """Labelled sample, and what the model gets right in it with the user's card."""

    path: Path
    label: Label
    right: int


def find_better_card(
    inputs: Sequence[TensorSpec],
    card: Card,
    score: LabelScore,
    samples: FileSamples,
    outputs: Outputs,
    labels: Sequence[Label],
    further: FileSamples,
    reference: Reference,
) -> str:
    """Return the best of the cards that are better by more than chance, as text; "" if there is none.

    The others differ in the order of colours, the range of pixels or the resize mode. One that is not ahead
    after TRIED_SAMPLES samples, or after all of ``samples``, is not tried further.

    Args:
        score: Score of ``outputs`` with the user's card.
        samples: Samples of ``outputs`` and ``labels``.
        further: Further samples, for the cards that are ahead.
    """
    rows = zip(samples.paths, labels, right_by_sample(card, outputs, labels), strict=True)
    compared = [_Compared(*row) for row in rows]
    tried = spread(range(len(compared)), TRIED_SAMPLES)
    parts = [
        [compared[index] for index in tried],
        [one for index, one in enumerate(compared) if index not in tried],
    ]

    @cache
    def further_part() -> list[_Compared]:
        try:
            found = find_labels(further.paths, card)
        except SampleError:  # a build without int8 does not need their labels
            found = None
        if found is None:
            return []
        results = [reference.run(sample) for sample in further]
        rows = zip(further.paths, found, right_by_sample(card, results, found), strict=True)
        return [_Compared(*row) for row in rows]

    others = list(_other_images(card))
    better: list[tuple[float, str]] = []
    for line, other in others:
        results: list[Mapping[str, Array]] = []
        done: list[_Compared] = []
        wins = losses = 0
        for number in range(3):
            part = parts[number] if number < len(parts) else further_part()
            results += [reference.run(read_sample(one.path, inputs, other)) for one in part]
            done += part
            placed = place_labels([one.label for one in done], other)
            differences = np.subtract(right_by_sample(other, results, placed), [one.right for one in done])
            wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
            if wins <= losses:
                break
        p = len(others) * (1 - binomial_cdf(wins - 1, wins + losses, 0.5)) if wins > losses else 1.0
        count = len(samples)
        value = score_on_labels(other, results[:count], placed[:count]) if p < BETTER_P else None
        if value is not None and value.value > score.value:
            text = (
                f"{line}: {score.metric} is {value.value:.3f} instead of {score.value:.3f} on the same "
                f"samples (sign test on {len(done)}, p = {p:.2g})"
            )
            better.append((value.value, text))
    return max(better)[1] if better else ""


def _other_images(card: Card) -> Iterator[tuple[str, Card]]:
    """Yield cards with another order of colours, range of pixels or resize mode of their only image, and the
    line that differs."""
    entries = card.fed_inputs()
    if len(entries) != 1 or not isinstance(entries[0], ImageInput) or entries[0].channels != 3:
        return
    image = entries[0]
    colour: Colour = "BGR" if image.colour == "RGB" else "RGB"
    others = [(f'colour = "{colour}"', replace(image, colour=colour))]
    for mean, std in STANDARD_PIXELS:
        if not np.allclose([image.mean, image.std], [mean, std], rtol=0.03, atol=2):
            others.append((f"mean = {list(mean)}, std = {list(std)}", replace(image, mean=mean, std=std)))
    plain = replace(image, place="top-left", pad=0, rounding="down", crop=1.0)
    others += [
        (f'resize = "{mode}"', replace(plain, resize=mode)) for mode in RESIZE_MODES if image.resize != mode
    ]
    for line, other in others:
        yield f"inputs.{image.name}: {line}", replace(card, inputs={**card.inputs, image.name: other})

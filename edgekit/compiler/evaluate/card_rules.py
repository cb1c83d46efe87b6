"""Checks without labels that a card fits its model: statistics of the model on the user's photographs,
and the tokenizer on the user's texts.

Thresholds for photographs are from 20 picture models with 134 wrong cards, each wrong in one line:

rule            right cards    wrong cards that it finds
spread          0.31 to 3.6    0..1 for 0..255 and the reverse: 24 of 24
flat, mirrored  0; 0.67 to 1   another decoder, other strides
few objects     -              a score of 0.95: 7 of 8. A warning, as a right detector of palms finds nothing
                               in streets
variance        0.99 to 1.01   0..1, -1..1 and ImageNet for one another, if the export kept a batch
                               normalization. A warning, as a right card has 0.38 on other photographs
colour          -              5 of 6 with 128 photographs, none with 24: a warning

No rule finds a wrong resize mode or crop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.card_inference.facts import constant_of
from edgekit.compiler.card_inference.first_layer import ALIVE, cut, first_layer
from edgekit.compiler.evaluate.labels import NO_BOXES
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EngineError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.inputs.image import Colour, ImageInput
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.nms import overlaps
from edgekit.processing.picture_files import read_picture
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.text_preparation import tokenizer_of, tokens_of
from edgekit.processing.tokenizer import unknown_id, vocabulary_size
from edgekit.runtime.clopper_pearson import binomial_cdf
from edgekit.tensor_spec import Array

LAYER_PHOTOGRAPHS, PHOTOGRAPHS, COLOUR_PHOTOGRAPHS = 8, 16, 128
"""Maximum number of photographs for the first layer, for objects, and for the order of colours."""
SPREAD = (0.05, 20.0)
"""Range of the median standard deviation of the first layer's channels."""
VARIANCE = (0.5, 2.0)
"""Range of the median variance of a batch normalization's input over the stored one."""
LEAST_OBJECTS, FLAT_AREA, FLAT_SHARE, MIRRORED_SHARE, SAME = 10, 1e-5, 0.2, 0.5, 0.5
"""Fewest objects to judge; area of a flat one as a share of the photograph; largest share of flat ones; least
share found again in the mirrored photograph, with this IoU."""
SHOWN_SHARE, LOW_SCORE = 1 / 8, 0.001
"""Least share of the photographs that show an object with the card's score, and the score with which the best
one is looked for."""
COLOUR_P, COLOUR_FIRST = 0.0005, 16
"""p of the sign test below which the other order of colours is better. Swapped cards in the table have .0003
or less, a right one has .0013 on photographs unlike its training's (ResNet-8, 32x32). The test ends early if
after COLOUR_FIRST photographs the other order is not ahead."""
UNCHECKED = "resize and crop can be checked only with labels"


@dataclass(frozen=True)
class CardFinding:
    """Evidence that a card does not fit its model.

    Attributes:
        text: Evidence, and the lines of the card that may be wrong.
        is_error: Whether a right card never has this evidence; else it is a warning.
    """

    text: str
    is_error: bool


def check_without_labels(model: ir.Model, card: Card, paths: Sequence[Path]) -> list[CardFinding]:
    """Check a card against the model's behaviour on photographs.

    Args:
        model: The source model, before any pass: folding removes batch normalizations.
        card: Its card, with one image input.
        paths: Photographs.

    Raises:
        SampleError: a photograph can't be read.
    """
    image = card.image_input()
    findings = list(_check_first_layer(model, card, image, paths[:LAYER_PHOTOGRAPHS]))
    if card.task is None or any(finding.is_error for finding in findings):
        return findings
    trial = _Trial(Reference(model), card)
    if card.task.kind == "detect":
        findings += _check_objects(trial, paths[:PHOTOGRAPHS])
    if not findings:
        findings += _check_colour(trial, image, paths[:COLOUR_PHOTOGRAPHS])
    return findings


def check_colour(model: ir.Model, card: Card, paths: Sequence[Path]) -> str:
    """Return the evidence that the other order of colours is right, "" if there is none."""
    images = card.fed_inputs()
    if len(images) != 1 or not isinstance(images[0], ImageInput):
        return ""
    trial = _Trial(Reference(model, optimize=True), card)
    found = _check_colour(trial, images[0], paths[:COLOUR_PHOTOGRAPHS])
    return next((finding.text for finding in found), "")


def _check_first_layer(
    model: ir.Model, card: Card, image: ImageInput, paths: Sequence[Path]
) -> Iterator[CardFinding]:
    layer = first_layer(model, image.name)
    if layer is None:
        return
    outputs = list(_values(model, layer, card, paths))
    if outputs[0].ndim != 4:
        return
    deviations = np.sqrt(np.mean([array.var(axis=(0, 2, 3)) for array in outputs], axis=0))
    spread = float(np.median(deviations[deviations >= ALIVE * deviations.max()]))
    lines = f"mean and std of inputs.{image.name}"
    if not SPREAD[0] <= spread <= SPREAD[1]:
        yield CardFinding(
            f"the first layer's channels have a standard deviation of {spread:.3g} on the photographs, "
            f"outside {SPREAD[0]:g} to {SPREAD[1]:g}: {lines} are not those of the training",
            True,
        )
        return
    node = _batch_normalization(model, layer, image.name)
    stored = constant_of(node.inputs[4]) if node is not None else None
    if node is None or node.inputs[0] is None or stored is None:
        return
    values = np.concatenate([*_values(model, node.inputs[0], card, paths)])
    live = stored > 1e-4 * stored.max()
    ratio = float(np.median(values.var(axis=(0, 2, 3))[live] / stored[live]))
    if not VARIANCE[0] <= ratio <= VARIANCE[1]:
        yield CardFinding(
            f"the input of {node.name or node.outputs[0].name} has {ratio:.2g} times the variance of the "
            f"training, outside {VARIANCE[0]:g} to {VARIANCE[1]:g}: {lines} or the photographs are unlike "
            "those of the training",
            False,
        )


def _batch_normalization(model: ir.Model, layer: ir.Value, name: str) -> ir.Node | None:
    """Return the batch normalization of the image, or of the first layer; None if there is none."""
    image = next(value for value in model.graph.inputs if value.name == name)
    nodes = [*(node for node, _ in image.uses()), layer.producer()]
    return next((node for node in nodes if node is not None and node.op_type == "BatchNormalization"), None)


def _values(model: ir.Model, value: ir.Value, card: Card, paths: Sequence[Path]) -> Iterator[Array]:
    if value.is_graph_input():
        yield from (processing.prepare(card, read_picture(path))[0][str(value.name)] for path in paths)
        return
    short = Reference(cut(model, value))
    names = {spec.name for spec in short.inputs}
    for path in paths:
        feeds, _ = processing.prepare(card, read_picture(path))
        yield short.run({name: array for name, array in feeds.items() if name in names})[str(value.name)]


class _Trial:
    """Model that predicts as a card says; each photograph's objects are kept.

    Args:
        reference: The model.
        card: Its card.
    """

    def __init__(self, reference: Reference, card: Card) -> None:
        self.reference, self.card = reference, card
        self._objects: dict[Path, tuple[Detections, Array]] = {}

    def predict(self, picture: Array, **options: Any) -> Any:
        """Return the prediction of a photograph; NO_BOXES or None if the outputs do not fit the card."""
        feeds, placed = processing.prepare(self.card, picture)
        try:
            return processing.decode(self.card, self.reference.run(feeds), placed, **options)
        except EngineError:
            return NO_BOXES if self.card.task is not None and self.card.task.kind == "detect" else None

    def find_objects(self, path: Path) -> tuple[Detections, Array]:
        """Return the objects in a photograph, and whether each is found again in the mirrored one."""
        if path not in self._objects:
            picture = read_picture(path)
            seen, mirrored = self.predict(picture), self.predict(np.ascontiguousarray(picture[:, ::-1]))
            boxes = mirrored.boxes.copy()
            boxes[:, [0, 2]] = picture.shape[1] - boxes[:, [2, 0]]
            same = seen.classes[:, None] == mirrored.classes[None]
            again = (same & overlaps(seen.boxes, boxes, SAME)).any(axis=1)
            self._objects[path] = seen, again
        return self._objects[path]


def _check_objects(trial: _Trial, paths: Sequence[Path]) -> Iterator[CardFinding]:
    count = flat = again = shown = 0
    for path in paths:
        seen, found = trial.find_objects(path)
        height, width = read_picture(path).shape[:2]
        sides = np.maximum(seen.boxes[:, 2:] - seen.boxes[:, :2], 0)
        flat += int((sides.prod(axis=1) < FLAT_AREA * height * width).sum())
        count, again, shown = count + len(seen), again + int(found.sum()), shown + bool(len(seen))
    if count >= LEAST_OBJECTS and flat > FLAT_SHARE * count:
        yield CardFinding(f"{flat} of {count} boxes are flat: task.decode is not the model's", True)
    elif count >= LEAST_OBJECTS and again < MIRRORED_SHARE * count:
        yield CardFinding(
            f"{again} of {count} boxes are found again in the mirrored photographs: task.decode or its "
            "options are not the model's",
            True,
        )
    elif shown < SHOWN_SHARE * len(paths):
        pictures = [trial.predict(read_picture(path), score=LOW_SCORE) for path in paths[:LAYER_PHOTOGRAPHS]]
        best = max(float(seen.scores.max(initial=0)) for seen in pictures)
        yield CardFinding(
            f"{shown} of {len(paths)} photographs show an object with the card's score; the best score is "
            f"{best:.3g}: task.score is too high, the card is wrong, or they show nothing that the model "
            "knows",
            False,
        )


def _check_colour(trial: _Trial, image: ImageInput, paths: Sequence[Path]) -> Iterator[CardFinding]:
    task = trial.card.task
    if task is None or task.kind not in ("classify", "detect") or image.colour not in ("RGB", "BGR"):
        return
    colour: Colour = "BGR" if image.colour == "RGB" else "RGB"
    swapped = replace(image, colour=colour)
    card = replace(trial.card, inputs={**trial.card.inputs, image.name: swapped})
    other = _Trial(trial.reference, card)
    wins = losses = 0
    for index, path in enumerate(paths):
        one, two = _certainty(trial, path), _certainty(other, path)
        wins, losses = wins + (two > one * 1.001 + 1e-6), losses + (one > two * 1.001 + 1e-6)
        if index >= COLOUR_FIRST and wins <= losses:
            return
    p = 1 - binomial_cdf(wins - 1, wins + losses, 0.5) if wins > losses else 1.0
    if p < COLOUR_P:
        yield CardFinding(
            f'the model is surer of {wins} photographs with inputs.{image.name}.colour = "{colour}", and of '
            f'{losses} with "{image.colour}" (sign test, p = {p:.1g})',
            False,
        )


def _certainty(trial: _Trial, path: Path) -> float:
    """Return the score of the best class, or the sum of the scores of the objects found again in the mirrored
    photograph."""
    if trial.card.task is not None and trial.card.task.kind == "detect":
        seen, again = trial.find_objects(path)
        return float(seen.scores[again].sum())
    classes: Classes | None = trial.predict(read_picture(path), top=1)
    return 0.0 if classes is None else float(classes.scores[0])


UNKNOWN_SHARE = 0.05
"""Largest share of unknown tokens. In 64 English sentences MiniLM's own tokenizer has none; without its
lower-casing it has .097."""
USED_SHARE = 0.9
"""Least size of the vocabulary relative to the embedding, whose rows are often rounded up, e.g. to 64."""


def check_texts(model: ir.Model, card: Card, samples: Sequence[Mapping[str, Array]]) -> Iterator[CardFinding]:
    """Check a card's tokenizer against the model's embedding and on texts.

    Args:
        model: The source model.
        card: Its card, with token ids.
        samples: The model's inputs for each text.
    """
    parts = [entry for entry in card.inputs.values() if isinstance(entry, TextInput)]
    ids = next(entry for entry in parts if entry.part == "ids")
    content = tokenizer_of(ids, card.files)
    size, rows = vocabulary_size(content), _embedding_rows(model, ids.name)
    line = f"{ids.tokenizer} of inputs.{ids.name}"
    if rows is not None and not USED_SHARE * rows <= size <= rows:
        yield CardFinding(
            f"{line} has {size} tokens, but the model's embedding {rows}: it is another model's tokenizer",
            size > rows,
        )
        return
    unknown = unknown_id(content)
    counted = [
        np.reshape(sample[ids.name], -1)[tokens_of(parts, sample, card.files).mask == 1] for sample in samples
    ]
    tokens = np.concatenate(counted) if counted else np.zeros(0, np.int64)
    count = int((tokens == unknown).sum()) if unknown is not None else 0
    if count > UNKNOWN_SHARE * len(tokens):
        yield CardFinding(
            f"{count} of {len(tokens)} tokens of the texts are unknown to {line}: it is not the model's, or "
            "the texts are in another language",
            False,
        )


def _embedding_rows(model: ir.Model, name: str) -> int | None:
    """Return the number of rows of the table that the token ids index; None if there is none."""
    value = next(one for one in model.graph.inputs if one.name == name)
    for node, index in value.uses():
        table = node.inputs[0]
        if node.op_type == "Gather" and index == 1 and table is not None and table.shape is not None:
            rows = table.shape[0]
            return rows if isinstance(rows, int) and table.is_initializer() else None
    return None

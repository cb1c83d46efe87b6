"""Augmentation of images for training: mirror, shift, change brightness, mix.

The teacher runs on the changed image, so its boxes, masks and keypoints are in the right place; no label
has to be moved. The card determines the changes: only images are changed, and text is not mirrored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.task_table import find_task
from edgekit.tensor_spec import Array

CHANGES = ("flip", "crop", "brightness")
SHIFT = 8
"""Shifted by up to an eighth of the height and the width; what is missing is mirrored at the edge."""
CONTRAST, BRIGHTNESS = 0.2, 25.0
"""Contrast is changed by up to this factor, brightness by up to so many of 255."""


def changes_for(card: Card | None, requested: str | None) -> tuple[str, ...]:
    """Return the changes to make.

    Args:
        requested: ``none``, or some of CHANGES with commas; None for the changes that suit the card.

    Raises:
        UsageError: a change is unknown, or no card declares an image as an input.
    """
    pictures = card is not None and any(isinstance(entry, ImageInput) for entry in card.inputs.values())
    if requested is None:
        mirrored = card is None or card.task is None or find_task(card.task.kind).mirrored
        return tuple(change for change in CHANGES if pictures and (change != "flip" or mirrored))
    names = [] if requested == "none" else [name.strip() for name in requested.split(",")]
    unknown = [name for name in names if name not in CHANGES]
    if unknown:
        raise UsageError(f"--augment {requested}: {unknown[0]!r} is not one of none, {', '.join(CHANGES)}")
    if names and not pictures:
        raise UsageError(f"--augment {requested}: needs a card that describes an image input")
    return tuple(change for change in CHANGES if change in names)


class PictureAugmentation:
    """Augmentation of the images of a batch.

    Args:
        card: Card that declares the images, with their layout, mean and std.
    """

    def __init__(self, card: Card | None, changes: Sequence[str]) -> None:
        self.changes = tuple(changes)
        entries = card.inputs if card is not None else {}
        self._pictures = {name: e for name, e in entries.items() if isinstance(e, ImageInput)}

    def __bool__(self) -> bool:
        return bool(self.changes and self._pictures)

    def __call__(self, batch: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return a changed copy of a batch ``[batch, 1, ...]``; other inputs are unchanged."""
        changed = dict(batch)
        for name, entry in self._pictures.items():
            if self.changes:
                pictures = [self._changed(picture, entry, rng) for picture in batch[name]]
                changed[name] = np.stack(pictures).astype(batch[name].dtype)
        return changed

    def _changed(self, picture: Array, entry: ImageInput, rng: np.random.Generator) -> Array:
        rows, columns = (2, 3) if entry.layout == "NCHW" else (1, 2)
        # All numbers are drawn in any case: one change more leaves the others as they were.
        mirrored, shifts, factor, offset = (
            rng.random() < 0.5, rng.uniform(-1, 1, 2), rng.uniform(-1, 1), rng.uniform(-1, 1),
        )  # fmt: skip
        if "flip" in self.changes and mirrored:
            picture = np.flip(picture, columns)
        if "crop" in self.changes:
            for axis, shift in zip((rows, columns), shifts, strict=True):
                picture = _shifted(picture, axis, round(shift * picture.shape[axis] / SHIFT))
        if "brightness" in self.changes:
            picture = _brighter(picture, entry, 1 + CONTRAST * factor, BRIGHTNESS * offset)
        return picture


def _shifted(picture: Array, axis: int, pixels: int) -> Array:
    size = picture.shape[axis]
    index = np.abs(np.arange(size) + pixels)
    return np.take(picture, np.where(index >= size, 2 * (size - 1) - index, index), axis)


def _brighter(picture: Array, entry: ImageInput, factor: float, offset: float) -> Array:
    """Change the brightness of pixels, around the middle of their range, in the units of the input."""
    shape = [1, -1, 1, 1] if entry.layout == "NCHW" else [1, 1, 1, -1]
    mean, std = (np.asarray(values, np.float32).reshape(shape) for values in (entry.mean, entry.std))
    if mean.size != entry.channels:  # a grey image has the first of each
        mean, std = mean.ravel()[:1].reshape([1] * 4), std.ravel()[:1].reshape([1] * 4)
    pixels = (picture * std + mean - 127.5) * np.float32(factor) + np.float32(127.5 + offset)
    changed: Array = (np.clip(pixels, 0, 255) - mean) / std
    return changed if picture.dtype.kind == "f" else np.rint(changed)

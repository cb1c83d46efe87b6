"""Class maps of photographs as pictures whose values are class numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.label_files.folder import label_paths
from edgekit.compiler.evaluate.label_metric import LabelledSample, LabelledSamples
from edgekit.compiler.evaluate.sample_files import files_below
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.picture_files import PICTURES, read_indices
from edgekit.tensor_spec import Array

MASKS = (".png", ".bmp", ".tif", ".tiff")
"""Formats without loss."""
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "SegmentationClass", "gt", "ground_truth")
MASK_ENDINGS = ("", "_mask", "-mask", "_label", "_labels", "_gt", "_labelIds")
"""Suffixes of a mask's name, after the name of its photograph."""
IGNORED = 255
"""Value of pixels that do not count, as in Pascal VOC; of a model with two classes, pixels of class 1."""


def read_masks(folder: Path, card: Card) -> LabelledSamples:
    """Pair photographs with masks of the same name: in a folder such as ``masks``, or named ``NAME_mask``.

    A label is the path of the mask. :func:`read_mask` reads it.

    Raises:
        SampleError: there are no photographs with masks.
    """
    if not folder.is_dir():
        raise SampleError(f"{folder} is not a folder; pass the folder of the photographs and their masks")
    pictures = label_paths(folder, MASKS, MASK_FOLDERS)
    masks = {path.stem: path for path in pictures if path.parent.name in MASK_FOLDERS}
    named = {path.stem: path for path in pictures if path.stem.endswith(MASK_ENDINGS[1:])}
    photographs = [
        path
        for path in files_below(folder, PICTURES)
        if path not in masks.values() and path not in named.values()
    ]
    samples = []
    for path in photographs:
        stems = [path.stem + ending for ending in MASK_ENDINGS]
        mask = next((table[stem] for table in (masks, named) for stem in stems if stem in table), None)
        if mask is not None:
            samples.append(LabelledSample(str(path.relative_to(folder)), path, mask))
    if not samples:
        raise SampleError(
            f"{folder} has no photographs with masks. Put the mask of images/NAME.jpg into masks/NAME.png, "
            "with the class numbers as its values"
        )
    missing = len(photographs) - len(samples)
    note = f"{missing} of {len(photographs)} photographs have no mask and were left out"
    return LabelledSamples(samples, "masks", [note] if missing else [])


def read_mask(path: Path, classes: Array, card: Card) -> Array:
    """Read a mask.

    Args:
        path: The mask.
        classes: The prediction, of the photograph's size: [height, width].
        card: Card of the model.

    Returns:
        Class numbers, -1 for pixels that do not count: int64 [height, width].

    Raises:
        SampleError: it can't be read, or has another size.
    """
    values = read_indices(path).astype(np.int64)
    if values.shape != classes.shape:
        sizes = [f"{width}x{height}" for height, width in (values.shape, classes.shape)]
        raise SampleError(f"{path} has {sizes[0]} pixels, but its photograph {sizes[1]}")
    task = card.task
    is_binary = task is not None and (task.decode == "binary" or len(task.labels) == 2)
    values[values == IGNORED] = 1 if is_binary else -1
    return values

"""Labels with a value for each pixel of a photograph: class numbers, alpha, depth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.array_files import read_arrays
from edgekit.compiler.evaluate.label_files.folder import label_paths
from edgekit.compiler.evaluate.label_metric import LabelledSample, LabelledSamples
from edgekit.compiler.evaluate.sample_files import files_below
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.picture_files import PICTURES, read_indices
from edgekit.tensor_spec import Array, TensorSpec

MASKS = (".png", ".bmp", ".tif", ".tiff")
"""Formats without loss."""
ARRAYS = (".npy",)
IGNORED = 255
"""Value of pixels that do not count, as in Pascal VOC. With two classes it is class 1 if no mask has a 1."""


class Maps(NamedTuple):
    """Files of maps.

    Attributes:
        name: Name of a map in messages, and the name of a folder of maps without its ``s``.
        values: Values of a map, for messages.
        suffixes: Suffixes of the files.
        folders: Names of folders of maps.
        endings: Suffixes of a map's name, after the name of its photograph.
    """

    name: str
    values: str
    suffixes: Sequence[str]
    folders: tuple[str, ...]
    endings: tuple[str, ...]


CLASS_MAPS = Maps(
    "mask",
    "the class numbers as its values",
    MASKS,
    ("masks", "mask", "labels", "annotations", "SegmentationClass", "gt", "ground_truth"),
    ("", "_mask", "-mask", "_label", "_labels", "_gt", "_labelIds"),
)


def read_masks(folder: Path, card: Card) -> LabelledSamples:
    """Read labelled class maps with :func:`pair_maps`."""
    _are_black_and_white.cache_clear()  # they may have changed since an earlier evaluation
    return pair_maps(folder, CLASS_MAPS)


def pair_maps(folder: Path, maps: Maps) -> LabelledSamples:
    """Pair photographs with maps of the same name: in a folder such as ``masks``, or named ``NAME_mask``.

    A label is the path of the map.

    Raises:
        SampleError: there are no photographs with maps.
    """
    if not folder.is_dir():
        raise SampleError(
            f"{folder} is not a folder; pass the folder of the photographs and their {maps.name}s"
        )
    pictures = label_paths(folder, maps.suffixes, maps.folders)
    masks = {path.stem: path for path in pictures if path.parent.name in maps.folders}
    named = {path.stem: path for path in pictures if path.stem.endswith(maps.endings[1:])}
    photographs = [
        path
        for path in files_below(folder, PICTURES)
        if path not in masks.values() and path not in named.values()
    ]
    samples = []
    for path in photographs:
        stems = [path.stem + ending for ending in maps.endings]
        mask = next((table[stem] for table in (masks, named) for stem in stems if stem in table), None)
        if mask is not None:
            samples.append(LabelledSample(str(path.relative_to(folder)), path, mask))
    if not samples:
        raise SampleError(
            f"{folder} has no photographs with {maps.name}s. Put the {maps.name} of images/NAME.jpg into "
            f"{maps.folders[0]}/NAME{maps.suffixes[0]}, with {maps.values}"
        )
    missing = len(photographs) - len(samples)
    note = f"{missing} of {len(photographs)} photographs have no {maps.name} and were left out"
    return LabelledSamples(samples, f"{maps.name}s", [note] if missing else [])


def read_map(path: Path, shape: tuple[int, ...]) -> Array:
    """Read a map from a picture of one channel or an array.

    Args:
        shape: Height and width of the photograph.

    Returns:
        [height, width], of the file's dtype.

    Raises:
        SampleError: it can't be read, or has another size.
    """
    if path.suffix.lower() in ARRAYS:
        return read_arrays(path, [TensorSpec("map", "float32", shape)])["map"]
    values = read_indices(path)
    if values.shape != shape:
        sizes = [f"{width}x{height}" for height, width in (values.shape, shape)]
        raise SampleError(f"{path} has {sizes[0]} pixels, but its photograph {sizes[1]}")
    return values


def read_mask(path: Path, classes: Array, card: Card) -> Array:
    """Read a mask.

    Args:
        classes: The prediction, of the photograph's size: [height, width].

    Returns:
        Class numbers, -1 for pixels that do not count: int64 [height, width].

    Raises:
        SampleError: it can't be read, or has another size.
    """
    values = read_map(path, classes.shape).astype(np.int64)
    task = card.task
    of_two = task is not None and (task.decode == "binary" or len(task.labels) == 2)
    if (values == IGNORED).any():
        values[values == IGNORED] = 1 if of_two and _are_black_and_white(path.parent, path.suffix) else -1
    return values


@lru_cache
def _are_black_and_white(folder: Path, suffix: str) -> bool:
    """Return whether no mask of a folder has class 1 by its number."""
    for path in sorted(folder.glob(f"*{suffix}")):
        with suppress(SampleError):  # a photograph next to its mask
            if (read_indices(path) == 1).any():
                return False
    return True

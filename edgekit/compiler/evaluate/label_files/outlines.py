"""Masks of labelled outlines: polygons, and COCO's run lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.errors import SampleError, need_package
from edgekit.tensor_spec import Array

REACH = 2
"""Largest coordinate of a polygon, relative to the photograph's size."""


def mask_of(outline: Any, height: int, width: int) -> Array:
    """Draw an outline as COCO's evaluation does: bool [height, width].

    Args:
        outline: Polygons, each a list of x, y, x, y, ... in pixels; or COCO's run lengths
            ``{counts, size}``, as a list or in the compressed form.

    Raises:
        SampleError: it is malformed.
        MissingDependency: there are polygons, and pycocotools is not installed.
    """
    try:
        if isinstance(outline, dict):
            return _from_runs(outline, height, width)
        polygons = [np.array(polygon, np.float64) for polygon in outline]
        limits = REACH * max(height, width)
        if not all(
            one.ndim == 1 and one.size >= 6 and one.size % 2 == 0 and (abs(one) <= limits).all()
            for one in polygons
        ):
            raise ValueError("a polygon has less than three corners, or is far outside the photograph")
    except (KeyError, TypeError, ValueError) as problem:
        raise SampleError(f"an outline is malformed: {problem}; correct it, or leave it out") from None
    with need_package("pycocotools", "drawing outlines", extra="labels"):
        from pycocotools import mask
    runs = mask.merge(mask.frPyObjects([polygon.tolist() for polygon in polygons], height, width))
    return _from_runs({**runs, "counts": runs["counts"].decode()}, height, width)


def _from_runs(outline: dict[str, Any], height: int, width: int) -> Array:
    counts = outline["counts"]
    lengths = np.array(_uncompressed(counts) if isinstance(counts, str) else counts, np.int64)
    if list(outline["size"]) != [height, width]:
        raise ValueError(f"its size is {outline['size']}, but the photograph's is {[height, width]}")
    if lengths.ndim != 1 or (lengths < 0).any() or (lengths > height * width).any():
        raise ValueError("its run lengths are not those of the photograph")
    if lengths.sum() != height * width:
        raise ValueError(f"its run lengths add up to {lengths.sum()}, not to {height * width}")
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(width, height).T


def _uncompressed(text: str) -> list[int]:
    """Return the run lengths of COCO's compressed form, the reverse of ``rle_text``."""
    counts: list[int] = []
    count = bits = 0
    for character in text:
        group = ord(character) - 48
        if not 0 <= group < 64 or bits > 40:
            raise ValueError("its run lengths are not compressed as COCO does")
        count |= (group & 31) << bits
        bits += 5
        if not group & 32:
            count -= (1 << bits) if group & 16 else 0
            counts.append(count + (counts[-2] if len(counts) > 2 else 0))
            count = bits = 0
    return counts

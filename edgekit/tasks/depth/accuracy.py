"""Absolute relative error of depth on labelled depth.

As usual, a model without a unit is first fitted to each photograph's labels with a factor and an offset, by
least squares: of 1 / depth for ``inverse`` (Ranftl et al., arXiv 1907.01341), of depth for ``relative``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_files.masks import ARRAYS, MASKS, Maps, pair_maps, read_map
from edgekit.compiler.evaluate.label_metric import LabelledSamples, LabelMetric, Scores, mean_error
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.predictions.depth import DepthMap
from edgekit.tensor_spec import Array

DEPTHS = Maps(
    "depth map",
    "millimetres as its values; or into NAME.npy in metres as float32. 0 is unknown",
    (*MASKS, *ARRAYS),
    ("depth", "depths", "depth_maps", "gt", "ground_truth"),
    ("", "_depth", "_gt"),
)
MM = 1000.0
"""Values of a picture for a metre."""
WITHIN = 1.25
"""Largest ratio of depths that delta1 counts as right."""
LEAST_SHARE = 1e-3
"""Least fitted 1 / depth, as a share of the largest labelled one."""


class Measured(NamedTuple):
    """Absolute relative error of a photograph, and the share of pixels within a factor of WITHIN."""

    error: float
    within: float


def read_depths(folder: Path, card: Card) -> LabelledSamples:
    """Read labelled depth: pictures in millimetres, or arrays in metres."""
    return pair_maps(folder, DEPTHS)


def measure(path: Path, prediction: DepthMap, card: Card) -> Measured:
    """Compute the errors of the pixels whose depth is known.

    Raises:
        SampleError: the labels can't be read, have another size than the photograph, or no depth.
    """
    values = read_map(path, prediction.values.shape)
    truth = values.astype(np.float64) / (1 if path.suffix.lower() in ARRAYS else MM)
    known = np.isfinite(truth) & (truth > 0)
    if not known.any():
        raise SampleError(f"{path} has no pixel with a depth above 0; leave it out")
    truth, depth = truth[known], prediction.values[known].astype(np.float64)
    if prediction.kind == "inverse":
        depth = 1 / np.maximum(_fitted(depth, 1 / truth), LEAST_SHARE / truth.min())
    elif prediction.kind == "relative":
        depth = np.maximum(_fitted(depth, truth), LEAST_SHARE * truth.max())
    ratio = np.maximum(depth, 1e-9) / truth
    return Measured(
        float(np.abs(depth / truth - 1).mean()), float((np.maximum(ratio, 1 / ratio) < WITHIN).mean())
    )


def score(measures: Sequence[Measured], card: Card) -> Scores:
    """Compute the mean over the photographs, of delta1 too."""
    faults = [f"off by {one.error:.1%}, {one.within:.1%} within {WITHIN:g}" for one in measures]
    within = {"delta1": [one.within for one in measures]}
    return mean_error([one.error for one in measures], faults, within)


def _fitted(values: Array, truth: Array) -> Array:
    """Return values times a factor plus an offset that are closest to the truth."""
    matrix = np.stack([values, np.ones_like(values)], axis=1)
    fitted: Array = matrix @ np.linalg.lstsq(matrix, truth, rcond=None)[0]
    return fitted


ACCURACY = LabelMetric(
    "abs. rel. error of depth",
    "samples",
    read_depths,
    measure,
    score,
    options={"size": "frame"},
    is_error=True,
    label_folders=DEPTHS.folders,
)

"""Mean absolute difference (MAD) of alpha on labelled mattes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.label_files.masks import MASKS, Maps, pair_maps, read_map
from edgekit.compiler.evaluate.label_metric import LabelledSamples, LabelMetric, Scores, mean_error
from edgekit.processing.card import Card
from edgekit.processing.predictions.matting import Matte

ALPHA = Maps(
    "matte",
    "alpha as its values, white for the foreground",
    MASKS,
    ("mattes", "matte", "alpha", "alphas", "masks", "gt"),
    ("", "_alpha", "_matte", "_mask", "_gt"),
)


def read_mattes(folder: Path, card: Card) -> LabelledSamples:
    """Read labelled mattes: pictures of one channel."""
    return pair_maps(folder, ALPHA)


def measure(path: Path, prediction: Matte, card: Card) -> float:
    """Compute the mean absolute difference of alpha.

    Raises:
        SampleError: the matte can't be read, or has another size than the photograph.
    """
    values = read_map(path, prediction.alpha.shape)
    white = 1 if values.max() <= 1 else 255 if values.max() <= 255 else 65535
    return float(np.abs(values.astype(np.float32) / white - prediction.alpha).mean())


def score(measures: Sequence[float], card: Card) -> Scores:
    """Compute the mean over the photographs."""
    return mean_error(measures, [f"alpha differs by {error:.3f}" for error in measures], {})


ACCURACY = LabelMetric(
    "MAD of alpha", "samples", read_mattes, measure, score, is_error=True, label_folders=ALPHA.folders
)

"""Matching of a student's channels with the teacher's, for intermediate values with the same name.

A student of ``edgekit model shrink`` has some of the teacher's channels, and its weights were fitted to
preserve their values. So each channel is found by the correlation of its values on a few samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.reference import Reference
from edgekit.tensor_spec import Array

SAMPLES, PLACES = 8, 4000
"""The most samples, and places of all of them together, that values are compared at."""
LEAST_CORRELATION = 0.5
"""Mean over the channels: less is another value of the same name."""
NO_VARIANCE = 1e-6


def matched_channels(
    teacher: ir.Model,
    student: ir.Model,
    values: Sequence[str],
    samples: Sequence[Sample],
    names: Mapping[str, str],
) -> dict[str, tuple[int, ...]]:
    """Find the teacher's channel for each of the student's.

    Args:
        teacher: The canonical teacher.
        student: The canonical student.
        values: Names of values ``[1, channels, ...]`` in both, with fewer channels in the student.
        samples: Samples of the teacher's inputs.
        names: The teacher's inputs -> the student's.

    Returns:
        Value -> channels, without values in which two channels match the same one, or do not correlate.
    """
    if not values:
        return {}
    chosen = [samples[index] for index in range(min(SAMPLES, len(samples)))]
    theirs = Reference(teacher, intermediate=list(values), optimize=True)
    ours = Reference(student, intermediate=list(values), optimize=True)
    expected = [theirs.run(sample) for sample in chosen]
    actual = [ours.run({names[name]: array for name, array in sample.items()}) for sample in chosen]
    channels_by_name = {}
    for name in values:
        correlation = _rows([run[name] for run in actual]) @ _rows([run[name] for run in expected]).T
        channels = correlation.argmax(1)
        distinct = len(set(channels.tolist())) == len(channels)
        if distinct and correlation.max(1).mean() >= LEAST_CORRELATION:
            channels_by_name[name] = tuple(channels.tolist())
    return channels_by_name


def _rows(arrays: Sequence[Array]) -> Array:
    """Return the values of each channel, with mean 0 and norm 1: ``[channels, places]``."""
    rows = np.concatenate([array[0].reshape(array.shape[1], -1) for array in arrays], 1).astype(np.float64)
    rows = rows[:, :: max(rows.shape[1] // PLACES, 1)]
    centred = rows - rows.mean(1, keepdims=True)
    normalized: Array = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), NO_VARIANCE)
    return normalized

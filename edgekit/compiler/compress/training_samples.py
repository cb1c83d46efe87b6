"""Samples for training: split into training and held-out ones, cached in memory, in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.compiler.evaluate.samples import Sample, sample_digests, subset
from edgekit.errors import SampleError
from edgekit.tensor_spec import Array

MEMORY_BYTES = 2**30
"""Samples are held in memory up to this size; more are read again in each epoch."""
HELD_OUT_SHARE = 8
"""Every eighth sample is for testing, and as many are for choosing the best weights ..."""
MOST_TEST, MOST_VALIDATION = 1000, 512
"""... up to these numbers."""
FEWEST = 16


@dataclass(frozen=True)
class SampleSplit:
    """Samples in three parts.

    Attributes:
        training: Samples to train weights on.
        validation: Samples to choose the best weights by.
        test: Samples to judge the result on.
    """

    training: Sequence[Sample]
    validation: Sequence[Sample]
    test: Sequence[Sample]


def hold_out(samples: Sequence[Sample], origin: str, least_tested: int = 0) -> SampleSplit:
    """Split by content: neither the order nor the names of files matter, and duplicates count once.

    Args:
        origin: Origin of the samples, for the error.
        least_tested: Least number of test samples, up to a third of all.

    Raises:
        SampleError: there are fewer than 16 different samples.
    """
    by_digest = {digest: index for index, digest in enumerate(sample_digests(samples))}
    order = [by_digest[digest] for digest in sorted(by_digest)]
    if len(order) < FEWEST:
        raise SampleError(
            f"{origin}: training needs {FEWEST} or more different samples, but has {len(order)}; hundreds "
            "to thousands are better (no labels needed)"
        )
    tested = min(len(order) // HELD_OUT_SHARE, MOST_TEST)
    tested = max(tested, min(least_tested, len(order) // 3))
    chosen = min(len(order) // HELD_OUT_SHARE, MOST_VALIDATION)
    parts = order[tested + chosen :], order[tested : tested + chosen], order[:tested]
    return SampleSplit(*(subset(samples, sorted(part)) for part in parts))


class TrainingSamples:
    """Samples in batches.

    Args:
        samples: Samples, all of one signature.
        memory_bytes: Memory limit for loading the samples; integers from 0 to 255 are stored as bytes.
    """

    def __init__(self, samples: Sequence[Sample], memory_bytes: int = MEMORY_BYTES) -> None:
        self._samples, self._count = samples, len(samples)
        self._loaded: dict[str, Array] = {}
        self._dtypes = {name: array.dtype for name, array in samples[0].items()}
        packed = [_packed(samples[index]) for index in range(min(len(samples), 8))]
        stored = {name: np.result_type(*(sample[name] for sample in packed)) for name in packed[0]}
        size = sum(array.size * stored[name].itemsize for name, array in packed[0].items())
        if size * len(samples) <= memory_bytes:
            self._load(stored)

    def _load(self, stored: Mapping[str, np.dtype[np.generic]]) -> None:
        first, count = self._samples[0], len(self._samples)
        arrays: dict[str, Array] = {
            name: np.empty((count, *array.shape), stored[name]) for name, array in first.items()
        }
        for index, sample in enumerate(self._samples):
            for name, array in sample.items():
                if arrays[name].dtype != array.dtype and not _are_bytes(array):
                    arrays[name] = arrays[name].astype(array.dtype)  # what the first ones did not show
                arrays[name][index] = array
        self._loaded, self._samples = arrays, ()

    def __len__(self) -> int:
        return self._count

    def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
        """Return arrays by input name: ``[batch, *shape of the input]``, of the input's dtype."""
        if self._loaded:
            return {name: array[indices].astype(self._dtypes[name]) for name, array in self._loaded.items()}
        chosen = [self._samples[int(index)] for index in indices]
        return {name: np.stack([sample[name] for sample in chosen]) for name in self._dtypes}


def _packed(sample: Sample) -> dict[str, Array]:
    return {
        name: array.astype(np.uint8) if _are_bytes(array) else np.asarray(array)
        for name, array in sample.items()
    }


def _are_bytes(array: Array) -> bool:
    """Return whether an array can be stored as uint8: an image with unnormalized pixels."""
    if array.dtype == np.uint8:
        return True
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        return False
    return bool(array.min(initial=0) >= 0 and array.max(initial=0) <= 255 and (array == array.round()).all())

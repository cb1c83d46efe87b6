"""Outputs of a model for many samples: in memory up to KEPT_BYTES, the others in a temporary file.

A detector's output at 1280 x 1280 has 11 MB a sample; comparisons read one sample at a time.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.tensor_spec import Array

KEPT_BYTES = 16 * 2**20
"""Bytes of outputs that one run over samples keeps in memory."""


class _Place(NamedTuple):
    offset: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


class _Spill:
    """An unnamed file of arrays; it ends with the last outputs in it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="edgekit-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def write(self, array: Array) -> _Place:
        place = _Place(self._file.tell(), array.dtype, array.shape)
        self._file.write(np.ascontiguousarray(array).data)
        self._file.flush()
        return place

    def read(self, place: _Place) -> Array:
        # A copy: pages of a mapping would count as this process's memory for as long as the array lives.
        return np.array(np.memmap(self._file, place.dtype, "r", place.offset, place.shape))


class _SpilledOutputs(Mapping[str, Array]):
    """Outputs for one sample, each read on access."""

    def __init__(self, spill: _Spill, outputs: Mapping[str, Array]) -> None:
        self._spill = spill
        self._places: dict[str, Array | _Place] = {
            name: spill.write(array) if array.size and not array.dtype.hasobject else array
            for name, array in outputs.items()
        }

    def __getitem__(self, name: str) -> Array:
        place = self._places[name]
        return self._spill.read(place) if isinstance(place, _Place) else place

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def keep_outputs(runs: Iterable[Mapping[str, Array]]) -> Sequence[Mapping[str, Array]]:
    """Keep the outputs of runs, as they come, in bounded memory."""
    stored: list[Mapping[str, Array]] = []
    spill, size_bytes = None, 0
    for outputs in runs:
        size_bytes += sum(array.nbytes for array in outputs.values())
        if size_bytes <= KEPT_BYTES:
            stored.append(outputs)
        else:
            spill = spill or _Spill()
            stored.append(_SpilledOutputs(spill, outputs))
    return stored

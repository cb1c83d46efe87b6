"""Quiet places of a sound, at which it can be cut between two words."""

from __future__ import annotations

import numpy as np

from edgekit.tensor_spec import Array

QUIET_S, LEVEL_S = 5.0, 0.2
"""Seconds at a window's end in which a quiet place is searched, and over which loudness is averaged."""


def quiet_place(samples: Array, rate: int) -> int:
    """Return the index of the quietest place in the last seconds of a window.

    Args:
        samples: float64 [n], at least one.
    """
    width = max(1, int(LEVEL_S * rate))
    first = max(0, len(samples) - min(int(QUIET_S * rate), len(samples) // 2))
    energy = np.convolve(np.square(samples[first:]), np.ones(width), "valid")
    return first + int(energy.argmin()) + width // 2

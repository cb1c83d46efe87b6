"""Limits of the golden vector alone: a build judges all samples together, a device has the first one."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.runtime.loading.golden_check import snr_db
from edgekit.tensor_spec import Array

DEVICE_MARGIN_DB = 6.0
"""Decibels by which the golden vector's SNR may be lower on a device. Another kernel rounds differently and
adds as much noise as the first (3 dB); a single vector is a small sample (3 dB more)."""


def golden_limits_db(
    expected: Mapping[str, Array], results: Mapping[str, Array], limits_db: Mapping[str, float]
) -> dict[str, float]:
    """Return the limits that are lower for the golden vector: those that the verified variant misses itself.

    A detector's sigmoids on noise are near zero, where float32 has few digits (PP-OCRv4: 27 dB, 49 dB over
    both samples).

    Args:
        limits_db: SNR limit in dB by output, over all samples.
    """
    limits = {}
    for name, limit_db in limits_db.items():
        snr = snr_db(expected[name], results[name])
        if snr is not None and snr < limit_db:
            limits[name] = round(max(snr - DEVICE_MARGIN_DB, 0.0), 1)
    return limits

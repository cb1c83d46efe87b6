"""Accuracy of a verified variant elsewhere: at another shape, or on a device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edgekit.compiler.evaluate.verify import ReferenceOutputs, compare_outputs, limits_db
from edgekit.tensor_spec import Array

MARGIN_DB = 6.0
"""Maximum drop of the SNR there, in dB: twice the noise's amplitude."""


def lowest_snr_db(reference: ReferenceOutputs, results: Sequence[Mapping[str, Array]]) -> float:
    """Return the SNR of the worst output in dB; infinite if all are equal to the reference's, and minus
    infinity if one differs in shape or in which values are finite."""
    errors = compare_outputs(reference, results, {spec.name: 0.0 for spec in reference.outputs})
    return min((e.snr_db for e in errors.values() if e.snr_db is not None), default=math.inf)


def limit_elsewhere_db(reference: ReferenceOutputs, precision: str, snr_db: float) -> float:
    limits = limits_db(reference.outputs, reference.saturating, reference.floors_db, precision)
    return min(min(limits.values()), snr_db - MARGIN_DB)

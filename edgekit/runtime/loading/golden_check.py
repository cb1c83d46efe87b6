"""Compare a loaded variant with the golden vectors on the device: does it run, and is it the right model?

It only rejects garbage; accuracy is judged by the build and ``edgekit verify``. What passed there must not
fail here by a tenth of a decibel. On an accelerator, where no build has run it, its whole limit holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EngineError
from edgekit.target import registry
from edgekit.tensor_spec import Array, Json, thinned

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.loading.output_checks import Golden, OutputChecks
    from edgekit.target.contract import Runner

GARBAGE_SHARE = 0.5
"""Share of a variant's own SNR limit, in dB, below which its outputs are garbage."""


def check_golden(
    runner: Runner, golden: Golden, output_checks: OutputChecks, limits_db: Mapping[str, float]
) -> None:
    """Run a variant on the golden vectors.

    Args:
        limits_db: Lowest SNR by output, as :func:`limits_db` gives it.

    Raises:
        EngineError: its outputs differ.
    """
    for feeds, expected in golden:
        outputs = runner.run(feeds)
        try:
            output_checks.check(outputs)
            for name, limit_db in limits_db.items():
                snr = snr_db(expected[name], like(expected[name], outputs[name]))
                if snr is not None and snr < limit_db:
                    raise EngineError(
                        f"output {name} of a golden vector: SNR {snr:.1f} dB; the limit is {limit_db:.1f} dB"
                    )
        except EngineError as wrong:
            wrong.blame = "bundle"
            raise


def like(expected: Array, actual: Array) -> Array:
    """Return outputs in the form of a golden vector's, which are thinned at a further shape."""
    return actual if expected.shape == actual.shape else thinned(actual)


def limits_db(variant: Variant, outputs: Sequence[str]) -> dict[str, float]:
    """Return the lowest SNR of each output, without those that have no limit in the evidence.

    Where the build ran the variant, it is the SNR below which an output is garbage. No build has run an
    accelerated copy, so its whole limit holds.

    Raises:
        EngineError: an accelerated copy has no limit.
    """
    copy = registry.ACCELERATOR in variant.options
    limits = {name: evidence_limit_db(variant.evidence, name) for name in outputs}
    if copy and None in limits.values():
        raise EngineError("the bundle has no SNR limit that its outputs could be held to on an accelerator")
    share = 1.0 if copy else GARBAGE_SHARE
    return {name: share * limit_db for name, limit_db in limits.items() if limit_db is not None}


def evidence_limit_db(evidence: Mapping[str, Json], output: str) -> float | None:
    """Return the SNR limit that the build applied to an output, or None. Evidence is unvalidated JSON, so any
    type may occur."""
    limit = None
    for kind, path in (("accuracy", (output, "limit_db")), ("limits_db", (output,))):
        value = evidence.get(kind)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        limit = value if limit is None else limit
    return None if isinstance(limit, bool) or not isinstance(limit, (int, float)) else float(limit)


def snr_db(expected: Array, actual: Array) -> float | None:
    """20 log10(|x| / |x - y|) over the finite values; None if equal, -1000 if the non-finite ones differ."""
    x, y = expected.astype(np.float64).reshape(-1), actual.astype(np.float64).reshape(-1)
    finite = np.isfinite(x)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(y[finite]).all():
        return -1000.0
    noise = float(((x - y)[finite] ** 2).sum())
    signal = float((x[finite] ** 2).sum())
    if noise == 0.0:
        return None
    return 10 * math.log10(signal / noise) if signal else -1000.0

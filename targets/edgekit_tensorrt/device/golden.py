"""The golden vector: inputs that every machine generates alike, and the file's outputs on the host.

Inputs are computed and not stored: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
Generators, OOPSLA 2014) has the same bits everywhere. At most 4096 evenly spread values
of each output are kept: they reveal an engine that computes something else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.runtime.loading.golden_check import snr_db as snr_db
from edgekit.system.formats.npy import NpyError, parse_npy
from edgekit.tensor_spec import Array, TensorSpec

KEPT_VALUES = 4096
LIMITS_DB: Mapping[str, float] = {"fp32": 50.0, "fp16": 20.0, "int8": 10.0, "fp8": 10.0}
"""Lowest SNR of an engine against the file's own output on the host, by precision. They separate an engine
from garbage, not a good model from a bad one: that is what the variant's own limits are for. Measured between
fp32 and fp16 files of six models on random inputs: 24 to 67 dB; between float and int8 ones: 9 to 41 dB."""


INTEGERS = ("coins", "ones", "zeros")
"""What integers are, the first that the model takes: 0 or 1, for an index must exist and little more is
known; or all the same, if it divides by them or an axis has one element."""


def golden_feeds(inputs: Sequence[TensorSpec], integers: str = "coins") -> dict[str, Array]:
    """Generate values for every input: floats in [0, 1), booleans by coin, integers by ``INTEGERS``."""
    return {spec.name: _values(spec, number, integers) for number, spec in enumerate(inputs)}


def _values(spec: TensorSpec, seed: int, integers: str) -> Array:
    count = math.prod(spec.shape)
    with np.errstate(over="ignore"):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        real: Array = (z >> np.uint64(40)).astype(np.float64) / 2.0**24
        return real.astype(dtype).reshape(spec.shape)
    if dtype.kind in "iu" and integers != "coins":
        return np.full(spec.shape, integers == "ones", dtype)
    return (z >> np.uint64(63)).astype(dtype).reshape(spec.shape)


def thinned(output: Array) -> Array:
    """Return the kept values of an output, [at most 4096], of its dtype."""
    flat = np.ascontiguousarray(output).reshape(-1)
    step = max(1, -(-flat.size // KEPT_VALUES))
    return flat[::step]


def golden_sha256(feeds: Mapping[str, Array], files: Sequence[bytes]) -> str:
    """Compute the SHA-256 of the whole vector: the inputs generated here, and the files of kept values."""
    digest = hashlib.sha256()
    for part in (*(np.ascontiguousarray(array).tobytes() for array in feeds.values()), *files):
        digest.update(part)
    return digest.hexdigest()


def golden_file(number: int) -> str:
    """Return the name of the file with the kept values of output ``number``."""
    return f"golden-{number}.npy"


def why_wrong(
    files: Mapping[str, Path], outputs: Sequence[TensorSpec], results: Mapping[str, Array], precision: str
) -> tuple[str, float | None]:
    """Return the error in outputs for :func:`golden_feeds`, or "", and the lowest SNR, dB; None if exact."""
    lowest: float | None = None
    for number, spec in enumerate(outputs):
        actual = thinned(results[spec.name])
        try:
            content = memoryview(files[golden_file(number)].read_bytes())
            expected = parse_npy(content, TensorSpec(spec.name, spec.dtype, actual.shape))
        except (OSError, NpyError) as problem:
            return f"the golden vector of {spec.name} cannot be read: {problem}", None
        snr = snr_db(expected, actual)
        if snr is not None and (lowest is None or snr < lowest):
            lowest = snr
        if snr is not None and snr < LIMITS_DB[precision]:
            limit = LIMITS_DB[precision]
            return f"output {spec.name}: SNR {snr:.1f} dB; {precision} needs {limit:g} dB", snr
    return "", lowest

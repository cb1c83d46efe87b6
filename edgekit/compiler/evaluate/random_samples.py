"""Random inputs, where the user gives no samples: seeded, and within the range of each input.

A range comes from the card, or else from the graph (edgekit/compiler/model/input_ranges.py), or else from the
dtype: floats -1 to 1; 8-bit integers all their values; wider integers and booleans 0 or 1, since a larger
value could be out of bounds as an index. A mask of tokens is ones, then zeros, as tokenizers pad: for a
token that cannot attend to any other, a transformer divides rounding errors by their sum.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.compiler.model.input_range import InputRange
from edgekit.processing.card import Card
from edgekit.tensor_spec import Array, TensorSpec

RANDOM_COUNT = 2
"""Random samples if the user gives none: two, to detect state that leaks between runs."""
MASK = "mask"
"""In the name of an input that is 0 or 1: ``attention_mask``."""


def random_arrays(
    inputs: Sequence[TensorSpec],
    ranges: Mapping[str, InputRange],
    count: int = RANDOM_COUNT,
) -> list[dict[str, Array]]:
    """Return uniform random inputs. The same inputs and ranges give the same arrays."""
    arrays = []
    for index in range(count):
        sample = {}
        for spec in inputs:
            # Seeded by name, not by index: an input keeps its values when another one is added.
            rng = np.random.default_rng([0, index, zlib.crc32(spec.name.encode())])
            sample[spec.name] = _random(rng, spec, ranges[spec.name])
        arrays.append(sample)
    return arrays


def is_mask(spec: TensorSpec) -> bool:
    """Return whether an input masks the padding of texts: ``attention_mask`` [texts, tokens]."""
    return MASK in spec.name.lower() and len(spec.shape) == 2 and np.dtype(spec.dtype).kind in "iub"


def sample_ranges(
    inputs: Sequence[TensorSpec], card: Card | None, graph_ranges: Mapping[str, InputRange]
) -> dict[str, InputRange]:
    """Return the range of every input, by name.

    Args:
        card: Card whose ranges have priority.
    """
    declared = card.ranges() if card is not None else {}
    ranges = {}
    for spec in inputs:
        if spec.name in declared:
            ranges[spec.name] = InputRange(*declared[spec.name], "")
        else:
            ranges[spec.name] = graph_ranges.get(spec.name) or _default(spec)
    return ranges


def range_notes(ranges: Mapping[str, InputRange]) -> dict[str, InputRange]:
    """Return the ranges to report to the user: found in the graph, or guessed."""
    return {name: input_range for name, input_range in ranges.items() if input_range.reason}


def _default(spec: TensorSpec) -> InputRange:
    dtype = np.dtype(spec.dtype)
    if dtype == np.bool_:
        return InputRange(0, 1, "")
    if dtype.kind not in "iu":
        return InputRange(-1.0, 1.0, "")
    if dtype.itemsize == 1:
        info = np.iinfo(dtype)
        return InputRange(int(info.min), int(info.max), "")
    if MASK in spec.name.lower():
        return InputRange(0, 1, "")
    shape = ", ".join(map(str, spec.shape))
    return InputRange(
        0,
        1,
        f"a guess, since the graph does not bound it; add samples, or in a card [inputs.{spec.name}] kind = "
        f'"tensor", shape = [{shape}], range = [0, 100]',
    )


def _random(rng: np.random.Generator, spec: TensorSpec, limits: InputRange) -> Array:
    dtype = np.dtype(spec.dtype)
    if dtype == np.bool_ and not is_mask(spec):
        return rng.integers(0, 2, spec.shape).astype(np.bool_)
    if dtype.kind in "iub":
        if is_mask(spec) and limits.low <= 0 < 1 <= limits.high:
            texts, tokens = spec.shape
            lengths = rng.integers((tokens + 1) // 2, max(tokens, 2), texts)
            return (np.arange(tokens) < lengths[:, None]).astype(dtype)
        info = np.iinfo(dtype)
        low, high = max(int(limits.low), info.min), min(int(limits.high), info.max)
        return rng.integers(low, high, spec.shape, dtype=dtype, endpoint=True)
    return rng.uniform(limits.low, limits.high, spec.shape).astype(dtype)

"""Further shapes of a bundle: ``extensions.shapes``, smallest first, each with a golden vector.

    [{"inputs": {"image": [1, 3, 320, 320]}, "outputs": {"boxes": [1, 2100, 85]},
      "golden": {"inputs": {}, "outputs": {"boxes": "golden/1/outputs-0.npy"}}}]

Golden vectors of further shapes are small: outputs are thinned (``tensor_spec.thinned``), and an input
without an entry is cut from that of the largest shape (``tensor_spec.cut_to``). A reader that does not know
the extension has the largest shape alone: the bundle's ``inputs``, ``outputs`` and ``golden``.

A bundle with a range (target/shape_range.py) has the tested shapes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgekit.errors import reason_of
from edgekit.system.formats.npy import npy_bytes
from edgekit.target.shape_range import OPTION as RANGE
from edgekit.target.shape_range import RangeShapes, parse_range
from edgekit.target.shapes import elements, shapes_text, signature_at
from edgekit.tensor_spec import (
    THINNED_VALUES,
    Array,
    Content,
    Json,
    Signature,
    TensorSpec,
    cut_to,
    thinned,
    thinned_specs,
)

EXTENSION = "shapes"


def shapes_of(manifest: Mapping[str, Json], largest: Signature) -> tuple[Signature, ...]:
    """Return inputs and outputs at each shape, the largest last; ``RangeShapes`` for a bundle with a range.

    Raises:
        ValueError: they are not further shapes of the model, in ascending order, or not of the range.
    """
    try:
        shapes = (*_further(manifest, largest), largest)
    except ValueError as problem:
        raise ValueError(f"shapes: {problem}") from None
    if RANGE not in manifest["extensions"]:
        return shapes
    try:
        of_range = parse_range(manifest["extensions"][RANGE], largest)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"range: {reason_of(problem)}") from None
    for signature in shapes:
        if of_range.of_inputs({spec.name: spec.shape for spec in signature.inputs}) != signature:
            raise ValueError(f"range: it does not hold {shapes_text(signature.inputs)}")
    return RangeShapes(shapes, of_range)


def _further(manifest: Mapping[str, Json], largest: Signature) -> list[Signature]:
    further: list[Signature] = []
    for entry in _entries(manifest):
        signature = signature_at(largest, entry["inputs"], entry["outputs"])
        if signature.inputs in [item.inputs for item in (*further, largest)]:
            raise ValueError(f"{shapes_text(signature.inputs)} twice")
        further.append(signature)
    if [elements(item.inputs) for item in further] != sorted(elements(item.inputs) for item in further):
        raise ValueError("the shapes are not in ascending order")
    return further


Pair = tuple[dict[str, Array], dict[str, Array]]


def with_further(
    golden: Sequence[Pair],
    manifest: Mapping[str, Json],
    shapes: Sequence[Signature],
    read: Callable[[Mapping[str, str], tuple[TensorSpec, ...]], dict[str, Array]],
) -> list[Pair]:
    """Return the golden vectors, followed by those of the further shapes with thinned outputs."""
    vectors = list(golden)
    for entry, (inputs, outputs) in zip(_entries(manifest), shapes, strict=False):
        stored = entry["golden"]["inputs"]
        data = read(stored, tuple(spec for spec in inputs if spec.name in stored))
        feeds = {
            s.name: data[s.name] if s.name in data else cut_to(golden[0][0][s.name], s.shape) for s in inputs
        }
        vectors.append((feeds, read(entry["golden"]["outputs"], thinned_specs(outputs))))
    return vectors


def _entries(manifest: Mapping[str, Json]) -> Json:
    return (manifest.get("extensions") or {}).get(EXTENSION, ())


def as_json(
    shapes: Sequence[Signature],
    golden: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    entries: dict[str, Content],
) -> list[dict[str, Json]]:
    """Return the extension; the golden vectors go into ``entries``."""
    further, largest = [], golden[-1][0]
    for number, (signature, (feeds, outputs)) in enumerate(zip(shapes[:-1], golden, strict=False), 1):
        stored = {
            name: array
            for name, array in feeds.items()
            if array.size <= THINNED_VALUES or not np.array_equal(array, cut_to(largest[name], array.shape))
        }
        thin = {
            spec.name: outputs[spec.name] if spec.is_open else thinned(outputs[spec.name])
            for spec in signature.outputs
        }
        sides = {side: shapes_json(specs) for side, specs in signature._asdict().items()}
        further.append({**sides, "golden": golden_json(number, (stored, thin), entries)})
    return further


def shapes_json(specs: Sequence[TensorSpec]) -> dict[str, Json]:
    """Return shapes by name."""
    return {spec.name: list(spec.shape) for spec in specs}


def golden_json(
    number: int, pair: tuple[Mapping[str, Array], Mapping[str, Array]], entries: dict[str, Content]
) -> dict[str, Json]:
    """Return a golden vector's entries by tensor; their contents go into ``entries``."""
    golden: dict[str, dict[str, str]] = {"inputs": {}, "outputs": {}}
    for kind, arrays in zip(golden, pair, strict=True):
        for index, (name, array) in enumerate(arrays.items()):
            golden[kind][name] = f"golden/{number}/{kind}-{index}.npy"
            entries[golden[kind][name]] = npy_bytes(array)
    return dict(golden)

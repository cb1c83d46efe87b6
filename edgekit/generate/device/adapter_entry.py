"""LoRA adapters of a language model, in ``extensions.adapters`` of a manifest.

    {"pirate": {"sha256": "...", "weights": "adapters/pirate.npy", "dtype": "float16",
                "matrices": {"model.layers.0.self_attn.q_proj.weight": [8, 576, 576], ...},
                "logits": "golden/adapter-pirate.npy"}}

``matrices`` has rank, inputs and outputs of each adapted matrix. ``weights`` has their values, in the order
of the sorted names: A [inputs, rank], then B [rank, outputs], with the adapter's scale in B. Who does not
know the key reads the bundle as if it had no adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgekit.bundle.manifest import DIGEST, plain_path
from edgekit.errors import BundleError
from edgekit.generate.device.adapter import (
    ADAPTERS_LIMIT,
    MATRICES_LIMIT,
    RANK_LIMIT,
    Matrices,
    is_adapter_name,
)
from edgekit.system.formats.json_schema import ManifestError, list_of, map_of, record, text, text_that, whole
from edgekit.system.formats.npy import NpyError, parse_npy
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Json, TensorSpec

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

KEY = "adapters"
SIDE_LIMIT = 1 << 20
"""Maximum inputs, and outputs, of an adapted matrix."""


class AdapterEntry(NamedTuple):
    """An adapter of a bundle.

    Attributes:
        sha256: Hash of the files that it was read from.
        weights: Entry of its values.
        dtype: Their element type, ``float16`` or ``float32``.
        matrices: Name of a weight -> rank, inputs and outputs.
        logits: Entry of the float reference's logits after the golden prompts, with the adapter.
    """

    sha256: str
    weights: str
    dtype: str
    matrices: Mapping[str, tuple[int, int, int]]
    logits: str

    @property
    def values(self) -> int:
        """Return the number of its values."""
        return sum(rank * (inputs + outputs) for rank, inputs, outputs in self.matrices.values())


def _sizes(value: Json, location: str) -> None:
    list_of(whole(1, SIDE_LIMIT), 3)(value, location)
    if len(value) != 3 or value[0] > RANK_LIMIT:
        raise ManifestError(f"{location}: {brief(value)} where [rank, inputs, outputs] is expected")


_SCHEMA = map_of(
    text_that(is_adapter_name, "a letter, then letters, digits, - and _"),
    record(
        {
            "sha256": DIGEST,
            "weights": plain_path,
            "dtype": text_that(("float16", "float32").__contains__, "float16 or float32"),
            "matrices": map_of(text, _sizes, MATRICES_LIMIT),
            "logits": plain_path,
        }
    ),
    ADAPTERS_LIMIT,
)


def adapters_of(bundle: Bundle) -> dict[str, AdapterEntry]:
    """Return the adapters of a bundle by name; {}: it has none.

    Raises:
        BundleError: they are malformed, or an entry that they name is not there.
    """
    extension = (bundle.manifest.get("extensions") or {}).get(KEY)
    if extension is None:
        return {}
    location = f"extensions.{KEY}"
    try:
        _SCHEMA(extension, location)
        entries = {entry["name"] for entry in bundle.manifest["entries"]}
        for adapter in extension.values():
            for entry in (adapter["weights"], adapter["logits"]):
                if entry not in entries:
                    raise ManifestError(f"{location}: entry {brief(entry)} does not exist")
    except ManifestError as problem:
        raise BundleError(
            f"{bundle.name} has adapters that cannot be used\n  {problem}; build it again"
        ) from None
    return {name: AdapterEntry(**adapter) for name, adapter in extension.items()}


def read_adapter(bundle: Bundle, entry: AdapterEntry) -> Matrices:
    """Read the matrices of an adapter: name of a weight -> A [inputs, rank], B [rank, outputs], as stored.

    Raises:
        BundleError: the entry is damaged, or has another size than the manifest declares.
    """
    try:
        values = parse_npy(bundle.read(entry.weights), TensorSpec("adapter", entry.dtype, (entry.values,)))
    except NpyError as problem:
        raise BundleError(f"{bundle.name}: entry {entry.weights}: {problem}; build it again") from None
    if not np.isfinite(values).all():
        raise BundleError(f"{bundle.name}: entry {entry.weights} has values that are not finite")
    matrices, start = {}, 0
    for name, (rank, inputs, outputs) in sorted(entry.matrices.items()):
        middle, end = start + rank * inputs, start + rank * (inputs + outputs)
        matrices[name] = (
            values[start:middle].reshape(inputs, rank),
            values[middle:end].reshape(rank, outputs),
        )
        start = end
    return matrices

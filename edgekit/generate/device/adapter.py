"""LoRA adapters of a loaded decoder: inputs of its graph, so that another adapter needs no other decoder.

A decoder that was compiled for adapters adds (x A) B to the product of each adapted matrix, or of several
matrices that are multiplied as one. A and B are inputs of the graph with an open rank; without an adapter the
rank is 0. ``Artifact.options["adapters"]`` lists these products:

    {"NAME": {"inputs": 576, "outputs": [["model.layers.0.self_attn.q_proj.weight", 576], ...]}}

where ``NAME/lora_a`` and ``NAME/lora_b`` are the inputs of the graph, and the outputs are in their order.

``extensions.adapters`` of a manifest has the adapters of a bundle:

    {"pirate": {"sha256": "...", "weights": "adapters/pirate.npy", "dtype": "float16",
                "matrices": {"model.layers.0.self_attn.q_proj.weight": [8, 576, 576], ...},
                "logits": "golden/adapter-pirate.npy"}}

``matrices`` has rank, inputs and outputs of each adapted matrix. ``weights`` has their values, in the order
of the sorted names: A [inputs, rank], then B [rank, outputs], with the adapter's scale in B. Who does not
know the key reads the bundle as if it had no adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from edgekit.bundle.manifest import DIGEST, plain_path
from edgekit.errors import BundleError, EngineError
from edgekit.generate.device.decoder import DecoderRunner
from edgekit.system.formats.json_schema import ManifestError, list_of, map_of, record, text, text_that, whole
from edgekit.system.formats.npy import NpyError, parse_npy
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Array, Json, TensorSpec

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

OPTION = "adapters"
"""The artifact's option that lists the adapted products; absent: the decoder takes no adapters."""
ADAPTERS_LIMIT, MATRICES_LIMIT, RANK_LIMIT = 64, 4096, 1024
NAME_LIMIT_CHARS = 64
Matrices = Mapping[str, tuple[Array, Array]]
"""Name of a weight -> A [inputs, rank] and B [rank, outputs], float16 or float32; the scale is in B."""
NO_MATRICES: Matrices = {}
UNKNOWN = "?"
"""Adapter of a runner while its inputs change: no text has it, also after a failure."""
KEY = "adapters"
SIDE_LIMIT = 1 << 20
"""Maximum inputs, and outputs, of an adapted matrix."""


@runtime_checkable
class AdapterRunner(DecoderRunner, Protocol):
    """A runner whose decoder was compiled for adapters."""

    adapter: str
    """Name of the adapter in use; "": none."""

    def adapt(self, name: str, matrices: Matrices) -> None:
        """Use an adapter from now on, and empty the cache, which belongs to the last one.

        Args:
            name: Name of the adapter; "" with no matrices: none. Runners of one ``another()`` keep the
                matrices of a name, which is not used for others.
        """


def is_adapter_name(name: str) -> bool:
    """Return whether a text can name an adapter: in a file name, and where a model's version can be.

    >>> is_adapter_name("pirate-8"), is_adapter_name("a:b"), is_adapter_name("8"), is_adapter_name("")
    (True, False, False, False)
    """
    plain = name.replace("-", "").replace("_", "")
    return plain.isascii() and plain.isalnum() and name[0].isalpha() and len(name) <= NAME_LIMIT_CHARS


def adapter_inputs(sites: Mapping[str, Json], matrices: Matrices) -> dict[str, Array]:
    """Return the values of a graph's inputs, float32: A [inputs, R] and B [R, outputs] of each product.

    Adapted matrices that are multiplied as one keep their ranks apart: R is the sum of them, and B has zeros
    in the outputs of the others.

    Raises:
        EngineError: the decoder has no such product, or one of other sizes.
    """
    inputs = {}
    places = {name: (s["inputs"], rows) for s in sites.values() for name, rows in s["outputs"]}
    for name, (a, b) in matrices.items():
        if places.get(name) != (len(a), b.shape[1]):
            raise EngineError(
                f"the adapter's {name[:80]} is {len(a)} x {b.shape[1]}, and the decoder has "
                f"{places.get(name, 'no such product')}: build the bundle again"
            )
    for site, sizes in sites.items():
        rank = sum(len(matrices[name][1]) for name, _ in sizes["outputs"] if name in matrices)
        whole_a = np.zeros((sizes["inputs"], rank), np.float32)
        whole_b = np.zeros((rank, sum(count for _, count in sizes["outputs"])), np.float32)
        row = column = 0
        for name, count in sizes["outputs"]:
            if name in matrices:
                a, b = matrices[name]
                whole_a[:, row : row + len(b)] = a
                whole_b[row : row + len(b), column : column + count] = b
                row += len(b)
            column += count
        inputs[f"{site}/lora_a"], inputs[f"{site}/lora_b"] = whole_a, whole_b
    return inputs


def inputs_bytes(sites: Mapping[str, Json], matrices: Mapping[str, tuple[int, int, int]]) -> int:
    """Return the memory of ``adapter_inputs``, in bytes, from rank, inputs and outputs of each matrix."""
    total = 0
    for sizes in sites.values():
        rank = sum(matrices[name][0] for name, _ in sizes["outputs"] if name in matrices)
        total += 4 * rank * (sizes["inputs"] + sum(count for _, count in sizes["outputs"]))
    return total


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

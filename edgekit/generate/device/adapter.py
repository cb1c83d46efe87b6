"""LoRA adapters of a loaded decoder: inputs of its graph, so that another adapter needs no other decoder.

A decoder that was compiled for adapters adds (x A) B to the product of each adapted matrix, or of several
matrices that are multiplied as one. A and B are inputs of the graph with an open rank; without an adapter the
rank is 0. ``Artifact.options["adapters"]`` lists these products:

    {"NAME": {"inputs": 576, "outputs": [["model.layers.0.self_attn.q_proj.weight", 576], ...]}}

where ``NAME/lora_a`` and ``NAME/lora_b`` are the inputs of the graph, and the outputs are in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from edgekit.errors import EngineError
from edgekit.generate.device.decoder import DecoderRunner
from edgekit.tensor_spec import Array, Json

OPTION = "adapters"
"""The artifact's option that lists the adapted products; absent: the decoder takes no adapters."""
ADAPTERS_LIMIT, MATRICES_LIMIT, RANK_LIMIT = 64, 4096, 1024
NAME_LIMIT_CHARS = 64
Matrices = Mapping[str, tuple[Array, Array]]
"""Name of a weight -> A [inputs, rank] and B [rank, outputs], float16 or float32; the scale is in B."""
NO_MATRICES: Matrices = {}
UNKNOWN = "?"
"""Adapter of a runner while its inputs change: no text has it, also after an interrupt."""


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
            matrices: Its matrices.
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

    Args:
        sites: The artifact's option.
        matrices: Matrices of the adapter; {}: none.

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

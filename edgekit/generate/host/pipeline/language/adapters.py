"""LoRA adapters in a language model's bundle: stored once, run on each variant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.generate.device.adapter import ADAPTERS_LIMIT, is_adapter_name
from edgekit.generate.device.adapter_entry import KEY
from edgekit.generate.host.judge.evaluation import TextReference, reference_of
from edgekit.generate.host.readers.language.adapter_files import Adapter, merged, open_adapter
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.system.formats.npy import npy_bytes
from edgekit.tensor_spec import Content, Json


class JudgedAdapter(NamedTuple):
    """An adapter, and the results of the float reference with the adapter merged into its weights."""

    adapter: Adapter
    reference: TextReference


def open_adapters(paths: Mapping[str, str | Path], model: LanguageModel) -> dict[str, Adapter]:
    """Open the adapters of a model.

    Raises:
        UsageError: a name is not valid, there are too many, or a path is not an adapter.
        ModelError: one is damaged, not plain LoRA, or of another model.
    """
    if len(paths) > ADAPTERS_LIMIT:
        raise UsageError(
            f"--adapter: {len(paths)} adapters were given; at most {ADAPTERS_LIMIT} fit a bundle"
        )
    for name in paths:
        if not is_adapter_name(name):
            raise UsageError(
                f"--adapter: {name[:80]!r} is not a name; use a letter and up to 63 letters, digits, - and _"
            )
    return {name: open_adapter(Path(path), model) for name, path in paths.items()}


def judged_adapters(
    adapters: Mapping[str, Adapter], model: LanguageModel, context: int
) -> dict[str, JudgedAdapter]:
    """Run the float reference with each adapter; errors as ``reference_of``."""
    judged = {}
    for name, adapter in adapters.items():
        whole = merged(model, adapter)
        judged[name] = JudgedAdapter(adapter, reference_of(whole, ReferenceDecoder(whole), context))
    return judged


def adapted_weights(model: LanguageModel, adapters: Mapping[str, JudgedAdapter]) -> list[str]:
    """Return the weights that at least one adapter changes, in the order of the model."""
    names = {name for judged in adapters.values() for name in judged.adapter.matrices}
    return [name for name in model.weight_names if name in names]


def adapter_contents(
    adapters: Mapping[str, JudgedAdapter],
) -> tuple[dict[str, Json], dict[str, Content]]:
    """Return the manifest's extension, in the form that ``adapter_entry.py`` reads, and the entries."""
    extension: dict[str, Json] = {}
    entries: dict[str, Content] = {}
    for name, (adapter, reference) in adapters.items():
        matrices = sorted(adapter.matrices.items())
        values = np.concatenate([matrix.ravel() for _, pair in matrices for matrix in pair])
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        stored = half if np.array_equal(half.astype(np.float32), values) else values
        weights, logits = f"adapters/{name}.npy", f"golden/adapter-{name}.npy"
        entries |= {weights: npy_bytes(stored), logits: npy_bytes(reference.logits)}
        extension[name] = {
            "sha256": adapter.sha256,
            "weights": weights,
            "dtype": stored.dtype.name,
            "matrices": {key: [len(b), len(a), b.shape[1]] for key, (a, b) in matrices},
            "logits": logits,
        }
    return ({KEY: extension} if extension else {}), entries

"""Trial of a decoder in the child process of a probe (runtime/loading/probe_child.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.errors import EngineError
from edgekit.generate.device.decoder_registry import open_decoder
from edgekit.tensor_spec import Json

CAPACITY = 64
"""Tokens of the cache: every build has as many."""


def trial_data(bundle: Bundle) -> Json:
    """Return the first golden prompt, as token ids."""
    about = bundle.manifest.get("extensions", {}).get("language_model")
    prompts = about.get("prompts") if isinstance(about, dict) else None
    return prompts[0] if isinstance(prompts, list) and prompts else [0]


def try_variant(
    target: str, files: Mapping[str, Path], options: Mapping[str, Json], threads: int, prompt: Any
) -> None:
    """Read the prompt and write one token.

    Raises:
        EngineError: the engine refused the files, or its logits are not finite.
        ProfileError, MissingDependency: the target is unknown, or its engine is not installed.
    """
    decoder = open_decoder(target, files, options, threads, CAPACITY)
    try:
        logits = decoder.forward(prompt[: CAPACITY - 1])
        logits = decoder.forward([int(logits[-1].argmax())])
        if not np.isfinite(logits.max()):
            raise EngineError("the decoder's logits are NaN or infinite")
    finally:
        decoder.close()

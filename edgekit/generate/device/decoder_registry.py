"""Decoders of the installed targets, found by name and loaded on first use; and the trial of one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.errors import EngineError, ProfileError
from edgekit.generate.device.decoder import DecoderCompiler, DecoderRunner
from edgekit.system.forked import leave_to_parent
from edgekit.target import registry
from edgekit.tensor_spec import Json

TRIAL_CAPACITY = 64
"""Tokens of the cache of a trial: every build has as many."""


def open_decoder(
    name: str,
    files: Mapping[str, Path],
    options: Mapping[str, Json],
    threads: int | None = None,
    capacity: int | None = None,
) -> DecoderRunner:
    """Load a language model's variant.

    Args:
        files: File name -> path, as in the artifact.
        threads: Threads for one step; None is the target's default.
        capacity: Tokens that the cache can hold; None: as many as the file has positions for.

    Raises:
        ProfileError: no such target, or it does not run language models.
        MissingDependency: the engine is not installed.
        UsageError: the file has no positions for so many tokens.
        EngineError: the engine refused the files.
    """
    module = registry.engine(name).ENGINE.decoder
    if not module:
        raise ProfileError(f"{name} does not run language models")
    decoder = import_module(module).open_decoder(files, options, threads, capacity)
    return leave_to_parent(cast(DecoderRunner, decoder))


def decoder_compiler(name: str) -> DecoderCompiler:
    """Return the module that compiles language models for a target.

    Raises:
        ProfileError: no such target, or it does not run language models.
    """
    module = registry.compiler(name).TARGET.decoder
    if not module:
        raise ProfileError(f"{name} does not run language models")
    return cast(DecoderCompiler, import_module(module))


def trial_data(bundle: Bundle) -> Json:
    """Return the first golden prompt, as token ids."""
    about = bundle.manifest.get("extensions", {}).get("language_model")
    prompts = about.get("prompts") if isinstance(about, dict) else None
    return prompts[0] if isinstance(prompts, list) and prompts else [0]


def try_variant(
    target: str, files: Mapping[str, Path], options: Mapping[str, Json], threads: int, prompt: Any
) -> None:
    """Read the prompt and write one token, in the child process of a probe.

    Raises:
        EngineError: the engine refused the files, or its logits are not finite.
        ProfileError, MissingDependency: the target is unknown, or its engine is not installed.
    """
    decoder = open_decoder(target, files, options, threads, TRIAL_CAPACITY)
    try:
        logits = decoder.forward(prompt[: TRIAL_CAPACITY - 1])
        logits = decoder.forward([int(logits[-1].argmax())])
        if not np.isfinite(logits.max()):
            raise EngineError("the decoder's logits are NaN or infinite")
    finally:
        decoder.close()

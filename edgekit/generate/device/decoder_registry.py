"""Decoders of the installed targets, found by name and loaded on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from edgekit.errors import ProfileError
from edgekit.generate.device.decoder import DecoderCompiler, DecoderRunner
from edgekit.system.forked import leave_to_parent
from edgekit.target import registry
from edgekit.tensor_spec import Json


def open_decoder(
    name: str,
    files: Mapping[str, Path],
    options: Mapping[str, Json],
    threads: int | None = None,
    capacity: int | None = None,
) -> DecoderRunner:
    """Load a language model's variant.

    Args:
        name: Name of the target.
        files: File name -> path, as in the artifact.
        options: The artifact's options.
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

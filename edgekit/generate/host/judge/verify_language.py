"""Verification of a language model's bundle on the engines of this machine: the golden prompts once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.draft_entry import draft_of
from edgekit.bundle.kept_variants import kept_variants
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.verify import OutputError, compare, verified_on
from edgekit.compiler.evaluate.verify_bundle import Check, CheckOutcome, counted_variants
from edgekit.errors import BundleError, MissingDependency, reason_of
from edgekit.generate.device import decoder_registry
from edgekit.generate.device.adapter import AdapterEntry, adapters_of, read_adapter
from edgekit.generate.device.cached_decoder import CachedDecoder
from edgekit.generate.device.decoder import DecoderShape
from edgekit.generate.device.prefix_cache import PrefixCache
from edgekit.runtime.loading import unpacked_files
from edgekit.runtime.loading.golden_check import evidence_limit_db
from edgekit.system.formats.npy import NpyError, parse_npy
from edgekit.target import registry
from edgekit.tensor_spec import Array, TensorSpec

EXTENSION = "language_model"
OUTPUT = "logits"
PROMPTS_LIMIT, PROMPT_LIMIT_TOKENS = 64, 4096
DEFAULT_LIMIT_DB = 10.0
"""Lowest SNR where the evidence holds none."""


def check_decoders(bundle: Bundle) -> list[Check]:
    """Check the decoders of a language model, with each of its adapters, and of its draft."""
    checks, adapters = [], adapters_of(bundle)
    for variant in counted_variants(kept_variants(bundle)):
        checks.append(_check_decoder(bundle, variant))
        for name, adapter in adapters.items():
            check = _check_decoder(bundle, variant, adapter.logits, adapter)
            checks.append(replace(check, variant=f"{check.variant} with {name}"))
    draft = draft_of(bundle.name, bundle.manifest)
    for variant in draft.variants if draft is not None else ():
        if draft is not None and variant.usable:
            check = _check_decoder(bundle, variant, draft.logits)
            checks.append(replace(check, variant=f"draft: {check.variant}"))
    return checks


def _check_decoder(
    bundle: Bundle, variant: Variant, logits: str | None = None, adapter: AdapterEntry | None = None
) -> Check:
    outcome, reason, errors = run_decoder(bundle, variant, logits, adapter)
    return Check(variant.name, CheckOutcome(outcome), reason, errors)


def golden_prompts(
    bundle: Bundle, vocabulary: int, entry: str | None = None
) -> tuple[list[list[int]], Array]:
    """Return the golden prompts, and the float reference's logits after each prompt, float32 [prompts,
    vocabulary].

    Args:
        entry: Entry of a draft's or an adapter's logits; None: those of the bundle's own decoder.

    Raises:
        BundleError: they are absent or malformed.
    """
    about = bundle.manifest.get("extensions", {}).get(EXTENSION)
    prompts = about.get("prompts") if isinstance(about, dict) else None
    entry = entry or (about.get("logits") if isinstance(about, dict) else None)
    if not (isinstance(entry, str) and isinstance(prompts, list) and 0 < len(prompts) <= PROMPTS_LIMIT):
        raise BundleError(f"{bundle.name} has no golden prompts to verify with; build it again")
    if not all(_is_prompt(prompt, vocabulary) for prompt in prompts):
        raise BundleError(
            f"{bundle.name}: its golden prompts have tokens that the model does not have; build it again"
        )
    spec = TensorSpec("logits", "float32", (len(prompts), vocabulary))
    try:
        return prompts, parse_npy(bundle.read(entry), spec)
    except NpyError as problem:
        raise BundleError(f"{bundle.name}: entry {entry}: {problem}; build it again") from None


def _is_prompt(prompt: Any, vocabulary: int) -> bool:
    return (
        isinstance(prompt, list)
        and 0 < len(prompt) <= PROMPT_LIMIT_TOKENS
        and all(type(token) is int and 0 <= token < vocabulary for token in prompt)
    )


def run_decoder(
    bundle: Bundle, variant: Variant, logits: str | None = None, adapter: AdapterEntry | None = None
) -> tuple[str, str, Mapping[str, OutputError]]:
    """Load a variant and run the golden prompts.

    Args:
        logits: Entry of a draft's logits, or of an adapter's.

    Returns:
        ``verified`` or ``failed`` or ``not run``; on which engine, or why not; the error of the logits.

    Raises:
        BundleError: the bundle has no golden prompts.
    """
    try:
        version = registry.engine(variant.target).engine_version()
    except MissingDependency as missing:
        return "not run", str(missing), {}
    try:
        shape = DecoderShape.from_options(variant.options)
        vocabulary = int(shape.vocabulary)
    except Exception as problem:  # options of a bundle from elsewhere are open JSON
        return "failed", f"its options are not those of a decoder: {reason_of(problem)}", {}
    prompts, expected = golden_prompts(bundle, vocabulary, logits)
    try:
        rows = _rows(bundle, variant, prompts, shape, adapter)
    except Exception as problem:  # an engine may throw anything at a file from elsewhere
        return "failed", f"{version}: {reason_of(problem)}", {}
    limit_db = evidence_limit_db(variant.evidence, OUTPUT)
    error = compare([expected], [rows], DEFAULT_LIMIT_DB if limit_db is None else limit_db)
    if not error.within_limit:
        return "failed", f"{OUTPUT}: {error}; the limit is {error.limit_db:g} dB", {OUTPUT: error}
    return "verified", verified_on(version, ""), {OUTPUT: error}


def _rows(
    bundle: Bundle,
    variant: Variant,
    prompts: Sequence[Sequence[int]],
    shape: DecoderShape,
    adapter: AdapterEntry | None,
) -> Array:
    files = unpacked_files.unpack(bundle, variant)
    capacity = min(shape.context, max(map(len, prompts)))
    runner = decoder_registry.open_decoder(variant.target, files, variant.options, 1, capacity)
    try:
        if adapter is not None:
            CachedDecoder(runner, PrefixCache(0)).adapt("golden", lambda name: read_adapter(bundle, adapter))
        rows = []
        for prompt in prompts:
            runner.truncate(0)
            rows.append(runner.forward(prompt)[-1])
        return np.stack(rows)
    finally:
        runner.close()

"""Draft in a language model's bundle: a smaller model of the same tokens, built for the same targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.bundle.draft_entry import KEY
from edgekit.compiler.pipeline.bundle_contents import variant_entry
from edgekit.compiler.pipeline.shared_tensors import share_tensors
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import UsageError
from edgekit.generate.host.judge.evaluation import TextReference
from edgekit.generate.host.pipeline.language.variants import LanguageJob
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.open_model import is_language_model, open_language_model
from edgekit.processing.tokenizer import guarded, open_whole
from edgekit.system.formats.npy import npy_bytes
from edgekit.target.precisions import LanguageBar, precision_of
from edgekit.tensor_spec import Content, Json

LOGITS = "golden/draft-logits.npy"
PERPLEXITY = 0.5
"""Share by which the perplexity of a draft in integers may be above its float model's: a worse guess costs
time and no text. A wrong graph is found by its logits."""


def open_draft(path: Path, model: LanguageModel) -> LanguageModel:
    """Open a draft, and check that its tokens are the model's.

    Args:
        model: The model whose tokens it predicts.

    Raises:
        UsageError: the draft is not a language model, or its tokens differ from the model's.
        ModelError: the draft is damaged, or has an unsupported architecture.
        CardError: a tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed.
    """
    if not is_language_model(path):
        raise UsageError(
            f"--draft: {path} is not a language model; pass a GGUF file or a Hugging Face folder"
        )
    draft = open_language_model(path)
    gap = _other_tokens(draft, model)
    if gap:
        raise UsageError(
            f"--draft: {draft.name} cannot draft for {model.name}: {gap}; use a model with the same tokenizer"
        )
    return draft


def _other_tokens(draft: LanguageModel, model: LanguageModel) -> str:
    """Return why the tokens of two models differ; "" if they are the same."""
    if draft.config.vocabulary != model.config.vocabulary:
        return f"it has {draft.config.vocabulary} tokens but the model has {model.config.vocabulary}"
    if draft.tokenizer == model.tokenizer:
        return ""
    ids, target = (
        guarded(open_whole(side.tokenizer).get_vocab, with_added_tokens=True) for side in (draft, model)
    )
    others = sorted(target[text] for text in target.keys() | ids.keys() if ids.get(text) != target.get(text))
    return f"{len(others)} of its tokens differ, the first one is {others[0]}" if others else ""


def draft_bars(bars: Mapping[str, LanguageBar]) -> dict[str, LanguageBar]:
    """Return the accuracy bars of a draft: its integers may be less accurate."""
    return {
        name: bar if precision_of(name).is_float else bar._replace(perplexity=max(bar.perplexity, PERPLEXITY))
        for name, bar in bars.items()
    }


def draft_contents(
    model: LanguageJob, draft: LanguageJob, variants: Sequence[VariantBuild]
) -> tuple[dict[str, Json], dict[str, Content]]:
    """Return the draft's contents of a bundle.

    Args:
        variants: Variants of the draft, judged.

    Returns:
        The manifest's extension, in the form that ``draft_entry.py`` reads, and the entries.
    """
    entries: dict[str, Content] = {LOGITS: npy_bytes(draft.reference.logits)}
    share, tokens = agreement(model.reference, draft)
    listed = [variant_entry(variant, entries) for variant in variants]
    share_tensors(variants, listed, entries)
    extension: dict[str, Json] = {
        "title": draft.model.name,
        "architecture": draft.model.config.architecture,
        "parameters": parameters(draft.model),
        "sha256": draft.model.sha256,
        "agreement": share,
        "tokens": tokens,
        "logits": LOGITS,
        "variants": listed,
    }
    return {KEY: extension}, entries


def agreement(model: TextReference, draft: LanguageJob) -> tuple[float, int]:
    """Compute the share of the text's tokens at which both float references agree on the likeliest next one.

    Returns:
        The share, and the number of tokens.
    """
    likeliest, size = draft.reference.likeliest, draft.context
    if draft.reference.windows != model.windows:  # another token before them, or a shorter context
        rows = draft.decoder.hidden([window[:size] for window in model.windows])
        likeliest = [draft.decoder.logits(row[:-1]).argmax(axis=-1) for row in rows]
    same = [ids == target[: len(ids)] for ids, target in zip(likeliest, model.likeliest, strict=True)]
    matches = np.concatenate(same)
    return float(f"{matches.mean():.6g}"), matches.size


def parameters(model: LanguageModel) -> int:
    """Count the parameters of a model."""
    return sum(int(np.prod(shape)) for shape in model.config.weight_shapes().values())

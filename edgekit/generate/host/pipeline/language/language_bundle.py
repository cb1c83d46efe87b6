"""Build of a language model: from one file to a bundle with a verified decoder for each target.

The build needs this memory, with the weights as float32:

    weights       (targets + DECODER_COPIES) x weights               variants, constants, engine, file pages
    cache         CACHE_COPIES    x keys and values of the context
    logits        LOGIT_COPIES    x a window's logits in float64     of which perplexity is judged
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import entry_of
from edgekit.compiler.pipeline.build_options import parse_max_drop
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.bundle_contents import manifest_of
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.memory_need import Claim, unclaimed
from edgekit.compiler.pipeline.shared_tensors import share_tensors
from edgekit.compiler.pipeline.variant_build import VariantBuild, refuse_if_all_are_lost
from edgekit.errors import ModelError, ProfileError, UsageError
from edgekit.generate.device import decoder_registry
from edgekit.generate.host.adapters import (
    Adapter,
    adapter_contents,
    judged_adapters,
    open_adapters,
)
from edgekit.generate.host.chat_templates import with_chat_template
from edgekit.generate.host.judge.evaluation import WINDOW_TOKENS, reference_of
from edgekit.generate.host.pipeline.generation import build_in_turn, source_entry
from edgekit.generate.host.pipeline.language.draft import draft_bars, draft_contents, open_draft, parameters
from edgekit.generate.host.pipeline.language.variants import (
    LanguageJob,
    add_float_choices,
    compile_language_variant,
)
from edgekit.generate.host.readers.language.language_model import DecoderConfig, LanguageModel
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.generate.host.weights.language.decoder_weights import BARS, PRECISIONS
from edgekit.processing.generation import CHAT_TEMPLATE_FILE, TOKENIZER_FILE, GenerationCard
from edgekit.system.formats.npy import npy_bytes
from edgekit.system.progress import Progress, listener, stage
from edgekit.target import registry
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, LanguageBar, precision_of
from edgekit.tensor_spec import Content, Json

CONTEXT_TOKENS = 2048
"""Most tokens of a text with its answer where nothing is said: the cache grows with it."""
LEAST_CONTEXT_TOKENS = 64
"""The golden prompts and what is written after them need as many."""
NO_ADAPTERS: Mapping[str, Adapter] = {}
MORE_ACCURATE = tuple(reversed(BARS))
TRIED_FIRST: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in BARS},
    AUTO: tuple(name for name in MORE_ACCURATE if name in PRECISIONS and precision_of(name).in_auto),
}
"""Requested precision -> what is built. Where none of it is good enough, the next more accurate one is."""
DECODER_COPIES, CACHE_COPIES, LOGIT_COPIES = 3, 4, 4


def build_language_model(
    path: Path,
    targets: Sequence[BuildTarget],
    request: BuildRequest,
    claim: Claim = unclaimed,
) -> Bundle:
    """Build a language model's bundle.

    Args:
        path: The model's file or folder, for which ``is_language_model`` is true.
        request: Arguments of the build; ``max_drop`` is the highest increase of perplexity for int8 and int4.
        claim: Called with the memory in bytes that the build needs, before it is used.

    Raises:
        UsageError: the precision is unknown, max_drop is not a percentage, the context exceeds the model's,
            the draft has other tokens, or an adapter's path is not an adapter.
        ModelError: the file is damaged, or has an unsupported architecture; or an adapter does not fit it.
        ProfileError: a target does not run language models.
        MissingDependency: a compiler, or the package ``tokenizers``, is not installed.
        BuildFault: every target met a fault.
    """
    bars, draft = _bars(request.requested_precision, request.max_drop), request.draft and Path(request.draft)
    _check_targets(targets, request)
    with stage(listener(request.progress), "opened") as notify:
        model = open_language_model(path)
        if request.chat_template:
            model = with_chat_template(model, request.chat_template)
        context = _context(model, request.context)
        notify(f"{path.name}  {described(model)}")
        small = open_draft(draft, model) if draft else None
        both = (model, small) if small else (model,)
        if any(part.config.experts for part in both):
            _check_targets(targets, request, experts=True)
        claim(sum(decoder_need(part.config, len(targets), context, WINDOW_TOKENS) for part in both), 0.0)
        adapters = open_adapters(request.adapters or {}, model)
    job, variants = _built(model, path, targets, bars, context, request, adapters, small is not None)
    extension, entries = adapter_contents(job.adapters)
    if not draft or small is None:
        return _bundle(job, path, targets, variants, extension, entries, request)
    own_context = min(context, small.config.context_length)
    drafted = _built(small, draft, targets, draft_bars(bars), own_context, request)
    draft_extension, draft_entries = draft_contents(job, *drafted)
    extension |= draft_extension
    return _bundle(job, path, targets, variants, extension, {**entries, **draft_entries}, request)


def _built(
    model: LanguageModel,
    path: Path,
    targets: Sequence[BuildTarget],
    bars: Mapping[str, LanguageBar],
    context: int,
    request: BuildRequest,
    adapters: Mapping[str, Adapter] = NO_ADAPTERS,
    drafted: bool = False,
) -> tuple[LanguageJob, list[VariantBuild]]:
    progress = listener(request.progress)
    with stage(progress, "reference") as notify:
        decoder = ReferenceDecoder(model)
        reference = reference_of(model, decoder, context)
        judged = judged_adapters(adapters, model, context)
        adapted = [f"; with {name} {row.reference.shown()}" for name, row in judged.items()]
        notify(f"perplexity {reference.shown()}{''.join(adapted)}; {reference.tokens} tokens")
    faults = Faults(model.sha256)
    job = LanguageJob(
        model, decoder, reference, context, bars, request.force, faults, judged, drafted=drafted
    )
    variants: list[VariantBuild] = []
    for target in targets:
        variants += _variants_of(job, target, request.requested_precision, progress)
    with stage(progress, "compared") as notify:
        add_float_choices(job, variants)
        notify(f"{sum(not v.rejected for v in variants)} of {len(variants)} variants kept")
    refuse_if_all_are_lost(path.name, job.faults, targets, variants)
    return job, variants


def _variants_of(
    job: LanguageJob, target: BuildTarget, precision: str, progress: Progress
) -> list[VariantBuild]:
    """Build the requested precision, then more accurate ones until one is good enough."""
    tried, available = TRIED_FIRST[precision], _available(target, bool(job.model.config.experts))
    further = MORE_ACCURATE[MORE_ACCURATE.index(tried[-1]) + 1 :]
    first, then = ([name for name in names if name in available] for names in (tried, further))
    compile_variant = partial(compile_language_variant, job)
    return build_in_turn(compile_variant, target, first, then, job.force, job.faults, progress)


def _bars(precision: str, max_drop: str | None) -> dict[str, LanguageBar]:
    if precision not in TRIED_FIRST:
        raise UsageError(
            f"language models cannot be built as {precision!r}; available: {', '.join(TRIED_FIRST)}"
        )
    bars = dict(BARS)
    if max_drop is None:
        return bars
    drop = parse_max_drop(max_drop).drop
    if drop is None:
        raise UsageError(
            f"--max-drop is {max_drop!r}; for language models it must be a percentage of perplexity, e.g. 2%"
        )
    if precision_of(precision).is_float:
        raise UsageError(f"--max-drop applies to int8 and int4, but the precision is {precision}")
    return {**bars, **{name: bars[name]._replace(perplexity=drop) for name in PRECISIONS}}


def _available(target: BuildTarget, experts: bool) -> tuple[str, ...]:
    """Return the precisions that a target compiles."""
    compiler = decoder_registry.decoder_compiler(target.name)
    return compiler.EXPERT_PRECISIONS if experts else compiler.PRECISIONS


def _check_targets(targets: Sequence[BuildTarget], request: BuildRequest, experts: bool = False) -> None:
    precisions, kind = TRIED_FIRST[request.requested_precision], " with experts" if experts else ""
    for target in targets:
        try:
            available = _available(target, experts)
        except ProfileError:
            able = [name for name in registry.target_names() if _runs_language_models(name)]
            raise ProfileError(f"{target.name} does not run language models; use {', '.join(able)}") from None
        if not available:
            raise UsageError(
                f"{target.name} would compute all experts of a layer for each token; build this model for "
                "other targets, e.g. ort or openvino"
            )
        if not set(precisions) & set(available):
            raise UsageError(
                f"{target.name} does not support {' or '.join(precisions)} for language models{kind}; "
                f"available: {', '.join(available)}"
            )
        if request.adapters and not decoder_registry.decoder_compiler(target.name).TAKES_ADAPTERS:
            raise UsageError(
                f"--adapter: {target.name} takes no adapters; leave it out, or merge the weights"
            )


def _runs_language_models(name: str) -> bool:
    try:
        return bool(registry.compiler(name).TARGET.decoder)
    except Exception:  # a target that is not built for may be broken
        return False


def _context(model: LanguageModel, context: int | None) -> int:
    maximum = model.config.context_length
    if maximum < LEAST_CONTEXT_TOKENS:
        raise ModelError(
            f"{model.name}: has a context of {maximum} tokens; at least {LEAST_CONTEXT_TOKENS} are needed"
        )
    if context is None:
        return min(CONTEXT_TOKENS, maximum)
    if not LEAST_CONTEXT_TOKENS <= context <= maximum:
        raise UsageError(
            f"--context is {context}; {model.name} supports {LEAST_CONTEXT_TOKENS} to {maximum} tokens"
        )
    return context


def described(model: LanguageModel) -> str:
    """Describe format, architecture and size, with the note of the reader."""
    return (
        f"{model.source_format}, {model.config.architecture}, {parameters(model) / 1e6:.0f} M parameters,"
        f" {model.config.layers} layers{'; ' if model.note else ''}{model.note}"
    )


def _bundle(
    job: LanguageJob,
    path: Path,
    targets: Sequence[BuildTarget],
    variants: Sequence[VariantBuild],
    extension: Mapping[str, Json],
    more: Mapping[str, Content],
    request: BuildRequest,
) -> Bundle:
    """Assemble the bundle: the card with its files, the variants, the golden prompts with the reference's
    logits, the adapters and the draft."""
    model, reference = job.model, job.reference
    template = CHAT_TEMPLATE_FILE if model.chat_template else ""
    about = {"license": model.license} if model.license else {}
    card = GenerationCard(
        model.name, TOKENIZER_FILE, template, model.stop_ids, model.bos_id, job.context, about
    )
    entries: dict[str, Content] = {entry_of(TOKENIZER_FILE): model.tokenizer, **more}
    entries["golden/logits.npy"] = npy_bytes(reference.logits)
    if template:
        entries[entry_of(template)] = model.chat_template.encode()
    language: dict[str, Json] = {
        "format": model.source_format,
        "architecture": model.config.architecture,
        "parameters": parameters(model),
    }
    origin = f"{reference.tokens} tokens of text, where its perplexity is {reference.shown()}"
    manifest = manifest_of(
        request, targets, variants, entries,
        source=source_entry(path, model.sha256, variants, {"language_model": language}),
        samples={"origin": origin}, inputs=(), outputs=(), card=card.as_json(),
    )  # fmt: skip
    share_tensors(variants, manifest["variants"], entries)
    manifest["options"]["context"] = job.context
    manifest["extensions"] = {
        "language_model": {"prompts": reference.prompts, "logits": "golden/logits.npy"},
        **extension,
    }
    return Bundle.create(manifest, entries)


def decoder_need(config: DecoderConfig, targets: int, context: int, window: int) -> int:
    """Estimate the bytes that a language model's build needs beyond what its file needs.

    Args:
        window: Number of tokens that are judged at one time.
    """
    weights = 4 * sum(math.prod(shape) for shape in config.weight_shapes().values())
    cache = 2 * 4 * config.layers * config.kv_heads * config.head_size * context
    return (
        (targets + DECODER_COPIES) * weights
        + CACHE_COPIES * cache
        + LOGIT_COPIES * 8 * window * config.vocabulary
    )

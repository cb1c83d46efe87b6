"""Build of a text-to-text model: from one folder to a bundle with a verified encoder and decoder per
target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.build.build_options import parse_max_drop
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.encoder_decoder.bundle import (
    SCORE_COPIES,
    WEIGHT_COPIES,
    assembled,
    build_variants,
    check_precision,
    constant,
)
from edgekit.compiler.build.encoder_decoder.variants import padded
from edgekit.compiler.build.faults import Faults
from edgekit.compiler.build.memory_need import Claim, unclaimed
from edgekit.compiler.build.text2text.texts import read_texts
from edgekit.compiler.build.text2text.variants import Text2TextJob, float_texts
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.model.text2text.open_text2text import open_text2text_model
from edgekit.compiler.model.text2text.text2text_model import Text2TextModel
from edgekit.compiler.quantize.language.decoder_weights import BARS, PRECISIONS
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.task import Task
from edgekit.processing.tasks.text2text.options import (
    SOURCE_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Text2TextOptions,
)
from edgekit.system.progress import stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.encoder_decoder import SOURCE, figures_of
from edgekit.target.precisions import LanguageBar, precision_of
from edgekit.tensor_spec import Array, Json


def build_text2text_model(
    path: Path, targets: Sequence[BuildTarget], request: BuildRequest, claim: Claim = unclaimed
) -> Bundle:
    """Build a text-to-text model's bundle.

    Args:
        path: The model's folder, for which ``is_text2text_model`` is true.
        targets: The targets to build for.
        request: Arguments of the build; ``samples`` are texts, and ``max_drop`` is the largest share by which
            an int8 variant's perplexity may exceed the float model's.
        claim: Called with the memory in bytes that the build needs, before it is used.

    Raises:
        UsageError: an option does not apply, the precision is unknown, or max_drop is not a percentage.
        ModelError: the folder is damaged, or has a form that EdgeKit does not run.
        SampleError: a text cannot be read, or is too long.
        MissingDependency: a compiler or the package ``tokenizers`` is not installed.
        BuildFault: every target met a fault.
    """
    bars = _checked(targets, request)
    with stage(request.progress, "opened") as notify:
        model = open_text2text_model(path, request.context)
        c = model.config
        parameters = sum(math.prod(shape) for shape in c.weight_shapes().values())
        notify(f"{path.name}  {model.source_format}, {model.family}, {parameters / 1e6:.1f} M parameters")
        claim(4 * (WEIGHT_COPIES * parameters + SCORE_COPIES * c.heads * c.positions**2), 0.0)
    with stage(request.progress, "reference") as notify:
        texts = read_texts(request.samples)
        written = float_texts(model, texts)
        notify(f"{sum(len(text.tokens) for text in written)} tokens written; {texts.origin}")
    job = Text2TextJob(model, bars, request.force, Faults(model.sha256), written)
    variants = build_variants(job, path, targets, request, _in_texts)
    about: Json = {"format": model.source_format, "architecture": model.family, "sizes": c.sizes()}
    return assembled(
        job, card_of(model), path, targets, variants, request,
        source={"text2text_model": about}, origin=texts.origin, golden=[_golden(job)],
    )  # fmt: skip


def _checked(targets: Sequence[BuildTarget], request: BuildRequest) -> Mapping[str, LanguageBar]:
    """Check the options; return the limits by precision."""
    others = [name for name in request.given_beside("any") if name not in ("--samples", "--context")]
    if others:
        raise UsageError(f"{', '.join(others)}: does not apply to text-to-text models; leave it out")
    check_precision(Text2TextJob.kind, targets, request.requested_precision)
    if request.max_drop is None:
        return BARS
    drop = parse_max_drop(request.max_drop).drop
    if drop is None or precision_of(request.requested_precision).is_float:
        raise UsageError(
            f"--max-drop is {request.max_drop!r}; for text-to-text models it is a percentage by which the "
            "perplexity of int8 may exceed the float model's, e.g. 2%"
        )
    return {**BARS, **{name: BARS[name]._replace(perplexity=drop) for name in PRECISIONS}}


def _in_texts(variant: VariantBuild) -> str:
    texts = variant.evidence.get("generation", {}).get("texts")
    if texts is None or variant.rejected:
        return ""
    return f"; {texts['equal']} of {texts['of']} texts are the float model's"


def card_of(model: Text2TextModel) -> Card:
    """Return the card: the text's tokens, constants for prompt and limit, the task."""
    c, files = model.config, {TOKENIZER_FILE: model.tokenizer}
    source_file = TOKENIZER_FILE
    if model.source_tokenizer != model.tokenizer:
        source_file = SOURCE_TOKENIZER_FILE
        files[source_file] = model.source_tokenizer
    inputs: dict[str, TextInput | TensorInput] = {
        SOURCE: TextInput(SOURCE, (1, c.positions), "ids", tokenizer=source_file, pad_id=model.pad),
        "prompt": constant("prompt", padded([model.start], c.context)),
        "limit": constant("limit", np.array([c.context - 1], np.int64)),
    }
    options = Text2TextOptions(
        tokenizer=TOKENIZER_FILE, spelling=model.spelling, start=model.start, special=model.special
    )
    outputs = {name: name for name in ("tokens", "logits", "figures")}
    return Card(model.name, dict(inputs), Task("text2text", "tokens", outputs, (), options), files=files)


def _golden(job: Text2TextJob) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the golden vector: the first text with the reference's tokens as prompt, no new tokens, and the
    reference's logits. Its figures are those of the prompt alone."""
    text, context = job.texts[0], job.model.config.context
    feeds = {
        SOURCE: text.source,
        "prompt": padded(text.judged_tokens[:-1], context),
        "limit": np.zeros(1, np.int64),
    }
    outputs = {
        "tokens": padded([], context),
        "logits": text.logits[-1:].astype(np.float32),
        "figures": figures_of(0.0, text.logits[0], job.model.rules),
    }
    return feeds, outputs

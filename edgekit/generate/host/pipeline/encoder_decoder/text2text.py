"""Build job of a text-to-text model: texts that variants read, and the perplexity of what the float model
writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.text_files import TEXTS, read_line, text_lines
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import SampleError, UsageError
from edgekit.generate.device.encoder_decoder import SOURCE
from edgekit.generate.host import kinds
from edgekit.generate.host.judge.evaluation import judged, perplexity, six_digits
from edgekit.generate.host.judge.texts import evaluation_text
from edgekit.generate.host.pipeline.encoder_decoder.job import (
    FORMS,
    OUTPUTS,
    EncoderDecoderJob,
    JudgedText,
    Kind,
    Source,
    Sources,
    constants,
)
from edgekit.generate.host.readers.text2text.open_text2text import Text2TextModel, open_text2text_model
from edgekit.generate.host.weights.language.decoder_weights import BARS
from edgekit.processing.card import Card
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.task import Task
from edgekit.processing.text2text_options import (
    SOURCE_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Text2TextOptions,
)
from edgekit.processing.tokenizer import tokenize
from edgekit.target.precisions import FULL_PRECISION, precision_of
from edgekit.tensor_spec import Array

WRITTEN_TOKENS = 32
"""Most tokens that the float model writes for each text."""
TEXTS_LIMIT = 12
"""Most texts of a build: each is encoded and written by the float reference and by every variant."""


def _read(samples: object, model: Text2TextModel) -> Sources:
    """Read texts: the user's, one a line, or sentences that the package ships. The latter are truncated where
    the model does not read as many tokens."""
    if samples is None:
        texts = re.split(r"(?<=[.!?])\s+", evaluation_text().strip())[:TEXTS_LIMIT]
        origin = f"{len(texts)} sentences of English prose"
    elif isinstance(samples, str | Path):
        lines = [line for path in find_files(str(samples), TEXTS) for line in text_lines(path)]
        texts = [read_line(line) for line in lines[:TEXTS_LIMIT]]
        origin = f"{len(texts)} given texts"
    else:
        raise UsageError(
            "samples of a text-to-text model are texts, one a line: pass a .txt file, folder or glob"
        )
    sources = [_source(model, text, truncates=samples is None) for text in texts]
    return Sources(origin, sources, samples is not None)


def _source(model: Text2TextModel, text: str, truncates: bool) -> Source:
    positions = model.config.positions
    numbers = tokenize(model.source_tokenizer, text, positions + 1, True).ids
    if len(numbers) > positions and truncates:
        numbers = [*numbers[: positions - 1], numbers[-1]]  # the last one ends a text
    if len(numbers) > positions:
        raise SampleError(
            f"the text {text[:40]!r} has more than {positions} tokens; shorten it, or raise --context"
        )
    source = np.full((1, positions), model.pad, np.int64)
    source[0, : len(numbers)] = numbers
    return Source({SOURCE: source}, np.array(numbers, np.int64), len(numbers))


def _described(job: EncoderDecoderJob) -> str:
    return f"{sum(len(text.tokens) for text in job.texts)} tokens written"


def _judge(job: EncoderDecoderJob, written: Sequence[JudgedText], variant: VariantBuild) -> tuple[str, str]:
    """Judge a variant by the perplexity of the float model's texts; in fp32, its texts must be equal."""
    end, limit = job.model.rules.ends[0], job.limits[variant.precision]
    likelihoods, likeliest = list[list[Array]](), list[Array]()
    for texts in (job.texts, written):
        pairs = zip(texts, job.texts, strict=True)
        judgements = [judged(row.logits, [*text.tokens, end][: len(row.logits)]) for row, text in pairs]
        likelihoods.append([likelihood for likelihood, _ in judgements])
        likeliest.append(np.concatenate([tokens for _, tokens in judgements]))
    expected, actual = map(perplexity, likelihoods)
    same, total = likeliest[0] == likeliest[1], len(written)
    equal = sum(other.tokens == text.tokens for text, other in zip(job.texts, written, strict=True))
    variant.evidence["generation"] = {
        "perplexity": six_digits(actual), "float_perplexity": six_digits(expected), "limit": limit,
        "tokens": len(same), "agreement": six_digits(float(np.mean(same))),
        "answers": [text.tokens for text in written], "texts": {"equal": equal, "of": total},
    }  # fmt: skip
    ratio, reason = actual / expected, ""
    if not ratio <= 1 + limit:
        reason = (
            f"perplexity of the float model's texts {actual:.2f}, {100 * (ratio - 1):.1f} % above its "
            f"own {expected:.2f}; {100 * limit:g} % is allowed"
        )
    elif variant.precision == FULL_PRECISION and equal < total:
        reason = f"{total - equal} of {total} texts differ from the float model's"
    return f"; {equal} of {total} texts are the float model's", reason


def card_of(model: Text2TextModel) -> Card:
    """Return the card: the text's tokens, constants for prompt and limit, the task."""
    c, files = model.config, {TOKENIZER_FILE: model.tokenizer}
    source_file = TOKENIZER_FILE
    if model.source_tokenizer != model.tokenizer:
        source_file = SOURCE_TOKENIZER_FILE
        files[source_file] = model.source_tokenizer
    inputs: dict[str, TextInput | TensorInput] = {
        SOURCE: TextInput(SOURCE, (1, c.positions), "ids", tokenizer=source_file, pad_id=model.pad),
        **constants(model, c.context - 1),
    }
    options = Text2TextOptions(
        tokenizer=TOKENIZER_FILE, spelling=model.spelling, start=model.start, special=model.special
    )
    return Card(model.name, dict(inputs), Task("text2text", "tokens", OUTPUTS, (), options), files=files)


TEXT2TEXT = Kind(
    models=kinds.TEXT2TEXT.name, samples="texts", entry="text2text_model",
    limits={name: BARS[name].perplexity for name in FORMS},
    loss="by which the perplexity of int8 may exceed the float model's",
    exact=tuple(name for name in FORMS if precision_of(name).is_float), needs_samples=False,
    judges_all=True, new_tokens=lambda context: WRITTEN_TOKENS, open=open_text2text_model, read=_read,
    card=card_of, described=_described, judge=_judge,
)  # fmt: skip
"""Build of a text-to-text model. Its limits are shares by which the perplexity of the float model's texts may
exceed the float model's own."""

"""Build job of a text-to-text model: texts that variants read, and the perplexity of what the float model
writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from edgekit.compiler.build.encoder_decoder.job import (
    FORMS,
    OUTPUTS,
    EncoderDecoderJob,
    FloatText,
    Source,
    Sources,
    VariantText,
    constants,
    padded,
)
from edgekit.compiler.build.language.evaluation import evaluation_text, judged, perplexity, six_digits
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.text_files import TEXTS, read_line, text_lines
from edgekit.compiler.model.text2text.open_text2text import open_text2text_model
from edgekit.compiler.model.text2text.text2text_model import Text2TextModel
from edgekit.compiler.quantize.language.decoder_weights import BARS
from edgekit.errors import SampleError, UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.task import Task
from edgekit.processing.tasks.text2text.options import (
    SOURCE_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Text2TextOptions,
)
from edgekit.processing.tokenizer import tokenize
from edgekit.target.encoder_decoder import SOURCE
from edgekit.target.precisions import FULL_PRECISION, precision_of
from edgekit.tensor_spec import Array, Json

WRITTEN_TOKENS = 32
"""Most tokens that the float model writes for each text."""
TEXTS_LIMIT = 12
"""Most texts of a build: each is encoded and written by the float reference and by every variant."""


@dataclass(eq=False)
class Text2TextJob(EncoderDecoderJob):
    """Build job of a text-to-text model. Its limits are shares by which the perplexity of the float model's
    texts may exceed the float model's own.

    Attributes:
        judgements: Results of ``judged`` on the float reference's logits of each text.
    """

    kind: ClassVar[str] = "text-to-text models"
    entry: ClassVar[str] = "text2text_model"
    samples: ClassVar[str] = "texts"
    options: ClassVar[tuple[str, ...]] = ("--samples", "--context")
    loss: ClassVar[str] = "by which the perplexity of int8 may exceed the float model's"
    exact: ClassVar[tuple[str, ...]] = tuple(name for name in FORMS if precision_of(name).is_float)
    judges_all: ClassVar[bool] = True
    model: Text2TextModel
    judgements: list[tuple[Array, Array]] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.judgements = [self._judged(text, text) for text in self.texts]

    @staticmethod
    def open(path: Path, context: int | None) -> Text2TextModel:
        """Open the folder."""
        return open_text2text_model(path, context)

    @staticmethod
    def read_sources(samples: object, model: Text2TextModel) -> Sources:
        """Read texts: the user's, one a line, or sentences that the package ships. The latter are truncated
        where the model does not read as many tokens."""
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

    @staticmethod
    def default_limits() -> dict[str, float]:
        """Return the largest increase of perplexity by precision."""
        return {name: BARS[name].perplexity for name in FORMS}

    def card(self) -> Card:
        """Return the card, with its files."""
        return card_of(self.model)

    def described(self) -> str:
        """Return the number of tokens that the float reference writes."""
        return f"{sum(len(text.tokens) for text in self.texts)} tokens written"

    def new_tokens(self) -> int:
        """Return the maximum number of new tokens of a text."""
        return WRITTEN_TOKENS

    def further_options(self) -> dict[str, Json]:
        """Return further options of an artifact."""
        return {"pad": self.model.pad}

    def judge_texts(self, written: Sequence[VariantText], variant: VariantBuild) -> str:
        """Add the evidence of the perplexity of the float model's texts, and of its own texts."""
        limit = self.limits[variant.precision]
        pairs = [self._judged(text, own) for text, own in zip(self.texts, written, strict=True)]
        (expected, actual), (choices, own_choices) = (
            [[pair[number] for pair in rows] for rows in (self.judgements, pairs)] for number in (0, 1)
        )
        float_perplexity, own_perplexity = perplexity(expected), perplexity(actual)
        same = np.concatenate(own_choices) == np.concatenate(choices)
        equal = sum(own.tokens == text.tokens for text, own in zip(self.texts, written, strict=True))
        variant.evidence["generation"] = {
            "perplexity": six_digits(own_perplexity), "float_perplexity": six_digits(float_perplexity),
            "limit": limit, "tokens": len(same), "agreement": six_digits(float(np.mean(same))),
            "answers": [text.tokens for text in written], "texts": {"equal": equal, "of": len(written)},
        }  # fmt: skip
        ratio = own_perplexity / float_perplexity
        if not ratio <= 1 + limit:
            return (
                f"perplexity of the float model's texts {own_perplexity:.2f}, {100 * (ratio - 1):.1f} % "
                f"above its own {float_perplexity:.2f}; {100 * limit:g} % is allowed"
            )
        if variant.precision == FULL_PRECISION and equal < len(written):
            return f"{len(written) - equal} of {len(written)} texts differ from the float model's"
        return ""

    @staticmethod
    def result(variant: VariantBuild) -> str:
        """Return the number of a variant's texts that are the float model's."""
        texts = variant.evidence.get("generation", {}).get("texts")
        return "" if texts is None else f"; {texts['equal']} of {texts['of']} texts are the float model's"

    def _judged(self, text: FloatText, written: FloatText | VariantText) -> tuple[Array, Array]:
        """Judge logits by the float model's tokens and the end that follows them."""
        following = [*text.tokens, self.model.rules.ends[0]][: len(text.logits)]
        return judged(written.logits, following)


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


def card_of(model: Text2TextModel) -> Card:
    """Return the card: the text's tokens, constants for prompt and limit, the task."""
    c, files = model.config, {TOKENIZER_FILE: model.tokenizer}
    source_file = TOKENIZER_FILE
    if model.source_tokenizer != model.tokenizer:
        source_file = SOURCE_TOKENIZER_FILE
        files[source_file] = model.source_tokenizer
    inputs: dict[str, TextInput | TensorInput] = {
        SOURCE: TextInput(SOURCE, (1, c.positions), "ids", tokenizer=source_file, pad_id=model.pad),
        **constants(padded([model.start], c.context), c.context - 1),
    }
    options = Text2TextOptions(
        tokenizer=TOKENIZER_FILE, spelling=model.spelling, start=model.start, special=model.special
    )
    return Card(model.name, dict(inputs), Task("text2text", "tokens", OUTPUTS, (), options), files=files)

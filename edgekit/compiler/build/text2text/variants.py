"""Variants of a text-to-text model: run on texts, and judged by the perplexity of what the float model
writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from edgekit.compiler.build.encoder_decoder.variants import EncoderDecoderJob, padded, shape_of
from edgekit.compiler.build.language.evaluation import judged, perplexity
from edgekit.compiler.build.text2text.texts import Texts
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.model.encoder_decoder.reference import ReferenceModel
from edgekit.compiler.model.text2text.text2text_model import Text2TextModel
from edgekit.errors import EngineError, SampleError
from edgekit.processing.tokenizer import tokenize
from edgekit.target.encoder_decoder import PADDING, model_outputs, text_inputs
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Array, Json, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

WRITTEN_TOKENS = 32
"""Most tokens that the float model writes for each text."""


class FloatText(NamedTuple):
    """Results of the float reference on one text.

    Attributes:
        source: Tokens of the text, padded, int64 [1, positions].
        tokens: New tokens.
        judged_tokens: The start token, the new tokens and an end token.
        logits: Logits after each of these but the last, float32 [tokens, vocabulary].
        likelihoods: Log likelihoods of the judged tokens after the first, float64 [tokens].
        likeliest: The likeliest tokens there, int64 [tokens].
    """

    source: Array
    tokens: list[int]
    judged_tokens: list[int]
    logits: Array
    likelihoods: Array
    likeliest: Array


@dataclass(eq=False)
class Text2TextJob(EncoderDecoderJob):
    """Build job of a text-to-text model.

    Attributes:
        model: The model.
        texts: Results of the float reference on the texts that variants are verified with.
    """

    kind: ClassVar[str] = "text-to-text models"
    model: Text2TextModel
    texts: list[FloatText]

    def ends(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return the inputs and outputs of a variant."""
        config = self.model.config
        return text_inputs(config.positions, config.context), model_outputs(shape_of(config))

    def options(self) -> dict[str, Json]:
        """Return further options of an artifact."""
        return {"pad": self.model.pad}

    def judge(self, runner: Runner, variant: VariantBuild) -> tuple[list[float], str]:
        """Run a variant on the texts: logits and perplexity of the float model's own tokens, and its own."""
        bar = self.bars[variant.precision]
        likelihoods, likeliest, logits, answers, seconds = [], [], [], list[list[int]](), list[float]()
        for text in self.texts:
            source, tokens = text.source, text.judged_tokens
            started = time.perf_counter()
            answers.append(self._written(runner, source, tokens[:1], WRITTEN_TOKENS)[0])
            seconds.append(time.perf_counter() - started)
            rows = [self._written(runner, source, tokens[:n], 0)[1] for n in range(1, len(tokens))]
            logits.append(np.stack(rows))
            likelihood, best = judged(logits[-1], tokens[1:])
            likelihoods.append(likelihood)
            likeliest.append(best)
        whole = np.concatenate([text.logits for text in self.texts])
        accuracy = compare([whole], [np.concatenate(logits)], bar.logits_db)
        expected, actual = perplexity([text.likelihoods for text in self.texts]), perplexity(likelihoods)
        same = np.concatenate(likeliest) == np.concatenate([text.likeliest for text in self.texts])
        equal = sum(answer == text.tokens for answer, text in zip(answers, self.texts, strict=True))
        variant.evidence["accuracy"] = {"logits": accuracy.as_json()}
        variant.evidence["generation"] = {
            "perplexity": _digits(actual), "float_perplexity": _digits(expected), "limit": bar.perplexity,
            "tokens": len(same), "agreement": _digits(float(np.mean(same))), "answers": answers,
            "texts": {"equal": equal, "of": len(answers)},
        }  # fmt: skip
        ratio, reason = actual / expected, ""
        if not accuracy.within_limit:
            reason = f"logits of the texts: {accuracy}; {bar.logits_db:g} dB is required"
        elif not ratio <= 1 + bar.perplexity:
            reason = (
                f"perplexity of the float model's texts {actual:.2f}, {100 * (ratio - 1):.1f} % above its "
                f"own {expected:.2f}; {100 * bar.perplexity:g} % is allowed"
            )
        elif variant.precision == FULL_PRECISION and equal < len(answers):
            reason = f"{len(answers) - equal} of {len(answers)} texts differ from the float model's"
        return seconds, reason

    def _written(
        self, runner: Runner, source: Array, prompt: Sequence[int], limit: int
    ) -> tuple[list[int], Array]:
        """Return the new tokens, and the logits after the prompt, or after the last token but one."""
        feeds = {"source": source, "prompt": padded(prompt, self.model.config.context)}
        outputs = runner.run({**feeds, "limit": np.array([limit], np.int64)})
        return [int(token) for token in outputs["tokens"][0] if token != PADDING], outputs["logits"][0]


def float_texts(model: Text2TextModel, texts: Texts) -> list[FloatText]:
    """Run the float reference on texts. Those that are not the user's are truncated.

    Raises:
        EngineError: its logits are not finite.
        SampleError: a text has more tokens than the model reads.
        CardError: the tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed.
    """
    decoder = ReferenceModel(model)
    return [_float_text(model, decoder, text, texts.from_user) for text in texts.sources]


def _float_text(model: Text2TextModel, decoder: ReferenceModel, text: str, whole: bool) -> FloatText:
    config = model.config
    numbers = tokenize(model.source_tokenizer, text, config.positions + 1, True).ids
    if len(numbers) > config.positions and not whole:
        numbers = [*numbers[: config.positions - 1], numbers[-1]]  # the last one ends a text
    if len(numbers) > config.positions:
        raise SampleError(
            f"the text {text[:40]!r} has more than {config.positions} tokens; shorten it, or raise --context"
        )
    source = np.full((1, config.positions), model.pad, np.int64)
    source[0, : len(numbers)] = numbers
    encoded = decoder.encode(np.array(numbers, np.int64))
    tokens = decoder.generate(encoded, [model.start], WRITTEN_TOKENS)
    chosen = [model.start, *tokens, model.rules.ends[0]][: config.context]
    logits = decoder.logits(encoded, chosen[:-1], [])
    if not np.isfinite(logits).all():
        raise EngineError(
            f"{model.name}: the float reference returns logits that are not finite; check the files"
        )
    return FloatText(source, tokens, chosen, logits, *judged(logits, chosen[1:]))


def _digits(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None

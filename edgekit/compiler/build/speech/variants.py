"""Variants of a speech model: run on the recordings, and judged by their logits and words."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from edgekit.compiler.build.encoder_decoder.variants import FORMS, EncoderDecoderJob, padded, shape_of
from edgekit.compiler.build.speech.recordings import Recordings
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.model.encoder_decoder.config import EncoderDecoderModel
from edgekit.compiler.model.encoder_decoder.reference import ReferenceModel
from edgekit.compiler.model.speech.speech_model import SpeechModel
from edgekit.errors import EngineError
from edgekit.processing.tasks.transcribe.metric import word_edits
from edgekit.processing.tasks.transcribe.words import words_of
from edgekit.target.encoder_decoder import (
    FEATURES,
    MASK,
    PADDING,
    PROMPT_TOKENS,
    SAMPLES,
    figures_of,
    model_inputs,
    model_outputs,
    sample_inputs,
)
from edgekit.target.sample_stem import LEAST_SAMPLES
from edgekit.target.shapes import TokenAxes
from edgekit.tensor_spec import Array, Signature, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Runner


@dataclass(frozen=True, eq=False)
class SpeechReference:
    """Results of the float reference.

    Attributes:
        forced: Prompt of each recording that continues with the reference's own first tokens.
        logits: Logits after each of those, float32 [recordings, vocabulary].
        tokens: All new tokens of each recording.
        texts: Their texts.
        figures: The output ``figures`` of each forced prompt, float32 [recordings, 2].
    """

    forced: list[list[int]]
    logits: Array
    tokens: list[list[int]]
    texts: list[str]
    figures: Array


@dataclass(eq=False)
class SpeechJob(EncoderDecoderJob):
    """Build job of a speech model.

    Attributes:
        model: The model.
        recordings: Sounds that variants are verified with.
        reference: Results of the float reference on them.
        words_limit: Most differing words by precision, as a share.
    """

    kind: ClassVar[str] = "speech models"
    model: SpeechModel
    recordings: Recordings
    reference: SpeechReference
    words_limit: Mapping[str, float]

    def ends(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return the inputs and outputs of a variant."""
        return ends_of(self.model)

    def at_shapes(self, model: EncoderDecoderModel) -> list[EncoderDecoderModel]:
        """Return the model at each of its windows, ascending."""
        assert isinstance(model, SpeechModel)
        return [model.at_window(samples) for samples in model.windows] or [model]

    def further(self) -> list[Signature]:
        """Return inputs and outputs at each of the windows but the longest."""
        models = [self.model.at_window(samples) for samples in self.model.further_windows]
        return [Signature(*map(tuple, ends_of(model))) for model in models]

    def axes(self) -> TokenAxes:
        """Return the axes of the samples, of which the session runs the shortest window that holds them."""
        return TokenAxes(MASK, False, {SAMPLES: (1,), MASK: (1,)})

    def feeds(self, number: int, prompt: Sequence[int], limit: int) -> dict[str, Array]:
        """Return the inputs of a variant for a recording."""
        source = self.recordings.features[number]
        others = {"prompt": padded(prompt, PROMPT_TOKENS), "limit": np.array([limit], np.int64)}
        if not self.model.config.window:
            return {FEATURES: source, **others}
        mask = np.zeros_like(source)
        mask[:, : self.recordings.samples[number]] = 1
        return {SAMPLES: source, MASK: mask, **others}

    def judge(self, runner: Runner, variant: VariantBuild) -> tuple[list[float], str]:
        """Run a variant on the recordings: logits, probability of no speech, and words."""
        logits, figures, tokens, seconds = _results(self, runner)
        limit_db, words_limit = self.bars[variant.precision].logits_db, self.words_limit[variant.precision]
        accuracy = compare([self.reference.logits], [logits], limit_db)
        silence = compare([self.reference.figures], [figures], FORMS[variant.precision].figures_db)
        texts = [self.model.text_of(sequence) for sequence in tokens]
        pairs = list(zip(self.reference.texts, texts, strict=True))
        words, edits = sum(len(words_of(text)) for text, _ in pairs), sum(word_edits(*pair) for pair in pairs)
        variant.evidence["accuracy"] = {"logits": accuracy.as_json(), "figures": silence.as_json()}
        variant.evidence["transcription"] = {
            "recordings": len(texts), "given": self.recordings.from_user, "words": words, "different": edits,
            "seconds": round(sum(self.recordings.samples) / self.model.sound.rate, 2), "limit": words_limit,
        }  # fmt: skip
        reason = ""
        if not accuracy.within_limit:
            reason = f"logits of the recordings: {accuracy}; {limit_db:g} dB is required"
        elif not silence.within_limit:
            reason = f"probability of no speech: {silence}; {silence.limit_db:g} dB is required"
        elif self.recordings.from_user and edits > words_limit * words:
            allowed = 100 * words_limit
            reason = f"{edits} of {words} words differ from the float model's; {allowed:g} % is allowed"
        return seconds, reason


def ends_of(model: SpeechModel) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Return the inputs and outputs of a variant at the model's window."""
    config = model.config
    inputs = sample_inputs(config.window) if config.window else model_inputs(config.mels, config.frames)
    return inputs, model_outputs(shape_of(config))


def reference_of(model: SpeechModel, recordings: Recordings) -> SpeechReference:
    """Run the float reference on the recordings.

    Raises:
        EngineError: its logits are not finite.
        CardError: the tokenizer is damaged.
    """
    reference, prompt, limit = ReferenceModel(model), model.prompt, model.config.context // 2
    forced, logits, tokens, figures = list[list[int]](), list[Array](), list[list[int]](), list[Array]()
    for features, samples in zip(recordings.features, recordings.samples, strict=True):
        source = features[0]
        encoded = reference.encode(source[: max(samples, LEAST_SAMPLES)] if model.config.window else source)
        new = reference.generate(encoded, prompt, limit)
        tokens.append(new)
        forced.append([*prompt, *new][: min(PROMPT_TOKENS, model.config.context // 2)])
        values = reference.logits(encoded, forced[-1], [])
        logits.append(values[-1])
        figures.append(figures_of(0.0, values[0], model.rules)[0])
    rows = np.stack(logits).astype(np.float32)
    if not np.isfinite(rows).all():
        raise EngineError(
            f"{model.name}: the float reference returns logits that are not finite; check the files"
        )
    texts = [model.text_of(values) for values in tokens]
    return SpeechReference(forced, rows, tokens, texts, np.stack(figures))


def _results(job: SpeechJob, runner: Runner) -> tuple[Array, Array, list[list[int]], list[float]]:
    """Return logits and figures after the forced prompts, the tokens of each recording, and the seconds of
    each text."""
    logits, figures, tokens, seconds = list[Array](), list[Array](), list[list[int]](), list[float]()
    for number, forced in enumerate(job.reference.forced):
        outputs = runner.run(job.feeds(number, forced, 0))
        logits.append(outputs["logits"][0])
        figures.append(outputs["figures"][0])
        feeds = job.feeds(number, job.model.prompt, job.model.config.context // 2)
        started = time.perf_counter()
        output = runner.run(feeds)["tokens"][0]
        seconds.append(time.perf_counter() - started)
        tokens.append([int(token) for token in output if token != PADDING])
    return np.stack(logits), np.stack(figures), tokens, seconds

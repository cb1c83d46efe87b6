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
from edgekit.compiler.model.encoder_decoder.reference import ReferenceModel
from edgekit.compiler.model.speech.speech_model import SpeechModel
from edgekit.errors import EngineError
from edgekit.processing.tasks.transcribe.metric import word_edits
from edgekit.processing.tasks.transcribe.words import text_of, words_of
from edgekit.processing.tokenizer import token_texts
from edgekit.target.encoder_decoder import PADDING, PROMPT_TOKENS, figures_of, model_inputs, model_outputs
from edgekit.tensor_spec import Array, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Runner


@dataclass(frozen=True, eq=False)
class SpeechReference:
    """Results of the float reference.

    Attributes:
        prompt: First tokens of a text without timestamps.
        forced: Prompt of each recording that continues with the reference's own first tokens.
        logits: Logits after each of those, float32 [recordings, vocabulary].
        tokens: All new tokens of each recording.
        texts: Their texts.
        figures: The output ``figures`` of each forced prompt, float32 [recordings, 2].
    """

    prompt: Sequence[int]
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
        config = self.model.config
        return model_inputs(config.mels, config.frames), model_outputs(shape_of(config))

    def judge(self, runner: Runner, variant: VariantBuild) -> tuple[list[float], str]:
        """Run a variant on the recordings: logits, probability of no speech, and words."""
        logits, figures, tokens, seconds = _results(self, runner)
        limit_db, words_limit = self.bars[variant.precision].logits_db, self.words_limit[variant.precision]
        accuracy = compare([self.reference.logits], [logits], limit_db)
        silence = compare([self.reference.figures], [figures], FORMS[variant.precision].figures_db)
        pieces = token_texts(self.model.tokenizer)
        texts = [text_of(sequence, pieces, self.model.rules.end) for sequence in tokens]
        pairs = list(zip(self.reference.texts, texts, strict=True))
        words, edits = sum(len(words_of(text)) for text, _ in pairs), sum(word_edits(*pair) for pair in pairs)
        variant.evidence["accuracy"] = {"logits": accuracy.as_json(), "figures": silence.as_json()}
        variant.evidence["transcription"] = {
            "recordings": len(texts), "given": self.recordings.from_user, "words": words, "different": edits,
            "seconds": round(sum(self.recordings.seconds), 2), "limit": words_limit,
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


def prompt_of(model: SpeechModel) -> list[int]:
    """Return the prompt of the golden vector: the first language, without timestamps."""
    tokens, rules = model.tokens, model.rules
    language = list(tokens.languages.values())[:1]
    task = [] if tokens.transcribe is None else [tokens.transcribe]
    return [tokens.start, *language, *task, rules.no_timestamps]


def reference_of(model: SpeechModel, recordings: Recordings) -> SpeechReference:
    """Run the float reference on the recordings.

    Raises:
        EngineError: its logits are not finite.
        CardError: the tokenizer is damaged.
    """
    reference, prompt, limit = ReferenceModel(model), prompt_of(model), model.config.context // 2
    forced, logits, tokens, figures = list[list[int]](), list[Array](), list[list[int]](), list[Array]()
    for features in recordings.features:
        encoded = reference.encode(features)
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
    pieces = token_texts(model.tokenizer)
    texts = [text_of(values, pieces, model.rules.end) for values in tokens]
    return SpeechReference(prompt, forced, rows, tokens, texts, np.stack(figures))


def _results(job: SpeechJob, runner: Runner) -> tuple[Array, Array, list[list[int]], list[float]]:
    """Return logits and figures after the forced prompts, the tokens of each recording, and the seconds of
    each text."""
    logits, figures, tokens, seconds = list[Array](), list[Array](), list[list[int]](), list[float]()
    limit = np.array([job.model.config.context // 2], np.int64)
    for features, forced in zip(job.recordings.features, job.reference.forced, strict=True):
        feeds = {
            "features": features[None],
            "prompt": padded(forced, PROMPT_TOKENS),
            "limit": np.zeros(1, np.int64),
        }
        outputs = runner.run(feeds)
        logits.append(outputs["logits"][0])
        figures.append(outputs["figures"][0])
        feeds |= {"prompt": padded(job.reference.prompt, PROMPT_TOKENS), "limit": limit}
        started = time.perf_counter()
        output = runner.run(feeds)["tokens"][0]
        seconds.append(time.perf_counter() - started)
        tokens.append([int(token) for token in output if token != PADDING])
    return np.stack(logits), np.stack(figures), tokens, seconds

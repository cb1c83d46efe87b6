"""Build job of an encoder-decoder: texts of its float reference, and each variant's texts compared with them.

A subclass has what differs between models that read speech and models that read text.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from edgekit.compiler.build.build_options import parse_max_drop
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.faults import Faults
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.lowering.language import BlockWeights
from edgekit.compiler.model.encoder_decoder.config import EncoderDecoderConfig, EncoderDecoderModel
from edgekit.compiler.model.encoder_decoder.reference import ReferenceModel
from edgekit.compiler.quantize.encoder_decoder.folded_norms import with_folded_norms
from edgekit.compiler.quantize.language.decoder_weights import BARS
from edgekit.errors import EngineError, UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.target.encoder_decoder import (
    PADDING,
    EncoderDecoderShape,
    figures_of,
    model_inputs,
    model_outputs,
    sample_inputs,
    text_inputs,
)
from edgekit.target.precisions import TABLE, SpeechBar
from edgekit.tensor_spec import Array, Json, Signature

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

FORMS: Mapping[str, SpeechBar] = {row.name: row.speech for row in TABLE if row.speech is not None}
"""Precision -> how encoder-decoders are built in it."""
OUTPUTS = {name: name for name in ("tokens", "logits", "figures")}
"""Output in a card's task -> output of a variant."""


class Source(NamedTuple):
    """A source that variants are verified with.

    Attributes:
        feeds: Inputs of a variant that hold it, by name.
        values: The source as ``ReferenceModel.encode`` takes it.
        length: Length without padding, in samples or tokens.
    """

    feeds: Mapping[str, Array]
    values: Array
    length: int


class Sources(NamedTuple):
    """Sources of a build.

    Attributes:
        origin: Description of their source.
        all: The sources; those of a model with several shapes begin with one for each, ascending.
        from_user: Whether they are the user's.
    """

    origin: str
    all: list[Source]
    from_user: bool


class FloatText(NamedTuple):
    """Results of the float reference on one source.

    Attributes:
        tokens: New tokens.
        forced: The prompt, and the first of the new tokens.
        logits: Logits after each token of ``forced``, or after the last one, float32 [rows, vocabulary].
        figures: The output ``figures`` after ``forced`` without new tokens, float32 [1, 2].
    """

    tokens: list[int]
    forced: list[int]
    logits: Array
    figures: Array


class VariantText(NamedTuple):
    """Results of a variant on one source: its own new tokens, and the others as those of ``FloatText``, after
    the same tokens."""

    tokens: list[int]
    logits: Array
    figures: Array


@dataclass(eq=False)
class EncoderDecoderJob(ABC):
    """Build job of an encoder-decoder.

    Attributes:
        model: The model.
        limits: Largest loss of quality by precision, in the unit of the subclass.
        force: Whether to ship variants that miss their limit, marked as such.
        faults: Faults of this build so far.
        sources: Sources that variants are verified with.
        texts: Results of the float reference on them.
        folded: The same model with its norms in the matrices that follow, for int8.
        weights: Its matrices as integers, once they were needed; shared by the targets.
    """

    kind: ClassVar[str]
    """Name of such models in messages."""
    entry: ClassVar[str]
    """Key of the model's facts in the manifest's ``source``."""
    samples: ClassVar[str]
    """Name of the sources in messages."""
    options: ClassVar[tuple[str, ...]]
    """Options of a build that apply to such models, besides those of any model."""
    loss: ClassVar[str]
    """Meaning of ``--max-drop``."""
    exact: ClassVar[tuple[str, ...]]
    """Precisions that ``--max-drop`` does not apply to."""
    judges_all: ClassVar[bool]
    """Whether the logits after all tokens of a text are compared, else those after its last one."""

    model: EncoderDecoderModel
    limits: Mapping[str, float]
    force: bool
    faults: Faults
    sources: Sources
    texts: list[FloatText] = field(init=False)
    folded: EncoderDecoderModel = field(init=False)
    weights: dict[str, BlockWeights] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        reference = ReferenceModel(self.model)
        self.texts = [self._float_text(reference, source) for source in self.sources.all]
        self.folded = with_folded_norms(self.model)

    @staticmethod
    @abstractmethod
    def open(path: Path, context: int | None) -> EncoderDecoderModel:
        """Open a model's folder.

        Args:
            path: The folder.
            context: Argument of the build; None: the default.

        Raises:
            ModelError: it is damaged, or has a form that EdgeKit does not run.
            UsageError: the model does not support the context.
        """

    @staticmethod
    @abstractmethod
    def read_sources(samples: object, model: Any) -> Sources:
        """Read the sources of a build.

        Args:
            samples: Argument of the build; None: sources that the package has.
            model: The model.

        Raises:
            UsageError: they are not files.
            SampleError: no files were found, or one cannot be read or is too long.
            CardError: the tokenizer is damaged.
            MissingDependency: the package ``tokenizers`` is not installed.
        """

    @staticmethod
    @abstractmethod
    def default_limits() -> dict[str, float]:
        """Return the largest loss of quality by precision."""

    @classmethod
    def checked_limits(cls, request: BuildRequest) -> dict[str, float]:
        """Return the largest loss of quality by precision, with ``--max-drop``.

        Raises:
            UsageError: ``--max-drop`` is not a percentage, or does not apply.
        """
        limits = cls.default_limits()
        if request.max_drop is None:
            return limits
        drop = parse_max_drop(request.max_drop).drop
        if drop is None or request.requested_precision in cls.exact:
            raise UsageError(
                f"--max-drop is {request.max_drop!r}; for {cls.kind} it is a percentage {cls.loss}, e.g. 2%"
            )
        return limits | {name: drop for name in limits if name not in cls.exact}

    @abstractmethod
    def card(self) -> Card:
        """Return the card, with its files."""

    @abstractmethod
    def described(self) -> str:
        """Describe the float reference's texts for the progress."""

    @abstractmethod
    def new_tokens(self) -> int:
        """Return the maximum number of new tokens of a text."""

    @abstractmethod
    def judge_texts(self, written: Sequence[VariantText], variant: VariantBuild) -> str:
        """Add the evidence of a variant's texts.

        Returns:
            Why it misses its limit; "": it does not.
        """

    @staticmethod
    @abstractmethod
    def result(variant: VariantBuild) -> str:
        """Describe a variant's texts for the progress; "" if it has none."""

    def further_options(self) -> dict[str, Json]:
        """Return further options of an artifact."""
        return {}

    @property
    def prompt_size(self) -> int:
        """Return the size of the input ``prompt``."""
        prompt = next(spec for spec in ends_of(self.model.config).inputs if spec.name == "prompt")
        return prompt.shape[1]

    def feeds(self, source: Source, prompt: Sequence[int], limit: int) -> dict[str, Array]:
        """Return all inputs of a variant for a source."""
        tokens = padded(prompt, self.prompt_size)
        return {**source.feeds, "prompt": tokens, "limit": np.array([limit], np.int64)}

    def golden(self, number: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the golden vector of a source: the reference's first tokens as prompt, no new tokens, and
        the reference's logits. Its figures are those of the prompt alone."""
        text, tokens = self.texts[number], padded([], self.model.config.context)
        outputs = {"tokens": tokens, "logits": text.logits[-1:], "figures": text.figures}
        return self.feeds(self.sources.all[number], text.forced, 0), outputs

    def judge(self, runner: Runner, variant: VariantBuild) -> tuple[list[float], dict[str, float]]:
        """Run a variant, add the evidence of its accuracy, and reject it if it misses its limits.

        Returns:
            The seconds of each generated text, and no further figures.
        """
        variant.evidence["executed"]["precision"] = variant.precision  # the parts' own is that of floats
        written, seconds = list[VariantText](), list[float]()
        for source, text in zip(self.sources.all, self.texts, strict=True):
            lengths = range(len(text.forced) - len(text.logits) + 1, len(text.forced) + 1)
            rows = [runner.run(self.feeds(source, text.forced[:length], 0)) for length in lengths]
            logits, figures = np.concatenate([row["logits"] for row in rows]), rows[-1]["figures"]
            feeds = self.feeds(source, self.model.prompt, self.new_tokens())
            started = time.perf_counter()
            tokens = runner.run(feeds)["tokens"][0]
            seconds.append(time.perf_counter() - started)
            written.append(VariantText([int(token) for token in tokens if token != PADDING], logits, figures))
        expected, actual = (np.concatenate([text.logits for text in rows]) for rows in (self.texts, written))
        limit_db = BARS[variant.precision].logits_db
        accuracy = compare([expected], [actual], limit_db)
        variant.evidence["accuracy"] = {"logits": accuracy.as_json()}
        reason = self.judge_texts(written, variant)
        if not accuracy.within_limit:
            reason = f"logits of the {self.samples}: {accuracy}; {limit_db:g} dB is required"
        if reason:
            variant.reject(reason)
        return seconds, {}

    def _float_text(self, reference: ReferenceModel, source: Source) -> FloatText:
        """Run the float reference. Raises EngineError: its logits are not finite."""
        encoded, prompt = reference.encode(source.values), self.model.prompt
        tokens = reference.generate(encoded, prompt, self.new_tokens())
        forced = [*prompt, *tokens][: min(self.prompt_size, self.model.config.context - 1)]
        logits = reference.logits(encoded, forced, [])
        rows = logits if self.judges_all else logits[-1:]
        if not np.isfinite(rows).all():
            raise EngineError(
                f"{self.model.name}: the float reference returns logits that are not finite; check the files"
            )
        return FloatText(tokens, forced, rows, figures_of(0.0, logits[0], self.model.rules))


def shape_of(config: EncoderDecoderConfig) -> EncoderDecoderShape:
    """Return the sizes between encoder and decoder."""
    return EncoderDecoderShape(
        config.heads, config.head_size, config.positions, config.context, config.vocabulary,
        config.decoder_layers, config.width if config.reads_text else 0, config.window,
    )  # fmt: skip


def ends_of(config: EncoderDecoderConfig) -> Signature:
    """Return the inputs and outputs of a variant."""
    if config.reads_text:
        inputs = text_inputs(config.positions, config.context)
    elif config.window:
        inputs = sample_inputs(config.window)
    else:
        inputs = model_inputs(config.mels, config.frames)
    return Signature(tuple(inputs), tuple(model_outputs(shape_of(config))))


def padded(prompt: Sequence[int], size: int) -> Array:
    """Return a prompt as the input of a variant, int64 [1, size]."""
    return np.array([[*prompt, *[PADDING] * (size - len(prompt))]], np.int64)


def constants(prompt: Array, limit: int) -> dict[str, TensorInput]:
    """Return the constant inputs of a card.

    Args:
        prompt: The prompt of a new text, int64 [1, size].
        limit: Maximum number of new tokens.
    """
    return {
        name: TensorInput(name, value.shape, value=tuple(map(float, value.ravel())), dtype="int64")
        for name, value in (("prompt", prompt), ("limit", np.array([limit], np.int64)))
    }

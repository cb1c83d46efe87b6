"""Build job of an encoder-decoder: texts of its float reference, and each variant's texts compared with them.

``Kind`` has what differs between models that read speech and models that read text.

For int8, norms have no weights: they are in the matrices that follow.

    y = (norm(x) * g + b) W^T + c    =>    y = norm(x) (W g)^T + (b W^T + c)

A norm's large weights would otherwise set the range of its whole row, which engines round to int8. The last
norm of the decoder keeps its weights: its matrix is the embedding too. Where keys have no bias, what b adds
to all keys alike changes no weight of attention. A norm after a sum (BART, Marian) keeps its weights as well:
its result is also added to what follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.pipeline.build_options import parse_max_drop
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EngineError, UsageError
from edgekit.generate.device.encoder_decoder import (
    PADDING,
    PROMPT_TOKENS,
    EncoderDecoderShape,
    figures_of,
    model_inputs,
    model_outputs,
    sample_inputs,
    text_inputs,
)
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.readers.encoder_decoder.config import (
    GATE,
    EncoderDecoderConfig,
    EncoderDecoderModel,
)
from edgekit.generate.host.readers.encoder_decoder.reference import ReferenceModel
from edgekit.generate.host.weights.language.decoder_weights import BARS
from edgekit.processing.card import Card
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.target.precisions import TABLE, SpeechBar
from edgekit.tensor_spec import Array, Signature

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

FORMS: Mapping[str, SpeechBar] = {row.name: row.speech for row in TABLE if row.speech is not None}
"""Precision -> how encoder-decoders are built in it."""
OUTPUTS = {name: name for name in ("tokens", "logits", "figures")}
"""Output in a card's task -> output of a variant."""
HEARD = ("encoder_attn.k_proj", "encoder_attn.v_proj")
"""Layers that follow the encoder's last norm."""
Model = TypeVar("Model", bound=EncoderDecoderModel)


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
        all: The sources; those of a model with several shapes begin with one for each, ascending.
    """

    origin: str
    all: list[Source]
    from_user: bool


class JudgedText(NamedTuple):
    """Results of the float reference or of a variant on one source.

    Attributes:
        forced: The prompt, and the first of the reference's new tokens.
        logits: Logits after each token of ``forced``, or after the last one, float32 [rows, vocabulary].
        figures: The output ``figures`` after ``forced`` without new tokens, float32 [1, 2].
    """

    source: Source
    tokens: list[int]
    forced: list[int]
    logits: Array
    figures: Array


class Kind(NamedTuple):
    """Traits in which the builds of speech and text-to-text models differ.

    Attributes:
        models: Name of such models in messages.
        samples: Name of the sources in messages.
        entry: Key of the model's facts in the manifest's ``source``.
        limits: Precision -> largest loss of quality.
        loss: Meaning of ``--max-drop``: the unit of the limits, in messages.
        exact: Precisions that ``--max-drop`` does not apply to.
        needs_samples: Whether ``--max-drop`` applies to the user's samples only.
        judges_all: Whether the logits after all tokens of a text are compared, else those after its last one.
        new_tokens: Returns the maximum number of new tokens of a text, by the model's context.
        open: Opens a folder, with the argument ``context`` of the build.
        read: Reads the argument ``samples`` of the build for a model.
        card: Returns the card of a model, with its files.
        described: Describes the reference's texts of a job for the progress.
        judge: Adds the evidence of a variant's texts, by the job. Returns their description for the progress,
            and why the variant misses its limit; "": it does not.
    """

    models: str
    samples: str
    entry: str
    limits: Mapping[str, float]
    loss: str
    exact: tuple[str, ...]
    needs_samples: bool
    judges_all: bool
    new_tokens: Callable[[int], int]
    open: Callable[[Path, int | None], EncoderDecoderModel]
    read: Callable[[object, Any], Sources]
    card: Callable[[Any], Card]
    described: Callable[[EncoderDecoderJob], str]
    judge: Callable[[EncoderDecoderJob, Sequence[JudgedText], VariantBuild], tuple[str, str]]

    def checked_limits(self, request: BuildRequest) -> dict[str, float]:
        """Return the largest loss of quality by precision, with ``--max-drop``.

        Raises:
            UsageError: ``--max-drop`` is not a percentage, or does not apply.
        """
        if request.max_drop is None:
            return {**self.limits}
        drop = parse_max_drop(request.max_drop).drop
        if drop is None or request.requested_precision in self.exact:
            raise UsageError(
                f"--max-drop is {request.max_drop!r}; for {self.models} it is a percentage {self.loss}, "
                "e.g. 2%"
            )
        if self.needs_samples and request.samples is None:
            raise UsageError(f"--max-drop of {self.models} needs {self.samples}; add --samples FOLDER")
        return {name: limit if name in self.exact else drop for name, limit in self.limits.items()}


@dataclass(eq=False)
class EncoderDecoderJob:
    """Build job of an encoder-decoder.

    Attributes:
        force: Whether to ship variants that miss their limit, marked as such.
        folded: The same model with its norms in the matrices that follow, for int8.
        weights: Its matrices as integers, once they were needed; shared by the targets.
        described: Name of a variant -> description of its texts for the progress.
    """

    kind: Kind
    model: Any
    limits: Mapping[str, float]
    force: bool
    faults: Faults
    sources: Sources
    texts: list[JudgedText] = field(init=False)
    folded: EncoderDecoderModel = field(init=False)
    weights: dict[str, BlockWeights] = field(init=False, default_factory=dict)
    described: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        reference = ReferenceModel(self.model)
        self.texts = [self._float_text(reference, source) for source in self.sources.all]
        self.folded = with_folded_norms(self.model)

    def golden(self, number: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the golden vector of a source: the reference's first tokens as prompt, no new tokens, and
        the reference's logits. Its figures are those of the prompt alone."""
        text, tokens = self.texts[number], padded([], self.model.config.context)
        outputs = {"tokens": tokens, "logits": text.logits[-1:], "figures": text.figures}
        return self._feeds(text.source, text.forced, 0), outputs

    def judge(self, runner: Runner, variant: VariantBuild) -> tuple[list[float], dict[str, float]]:
        """Run a variant, add the evidence of its accuracy, and reject it if it misses its limits.

        Returns:
            The seconds of each generated text, and no further figures.
        """
        variant.evidence["executed"]["precision"] = variant.precision  # the parts' own is that of floats
        written, seconds = list[JudgedText](), list[float]()
        new_tokens = self.kind.new_tokens(self.model.config.context)
        for text in self.texts:
            lengths = range(len(text.forced) - len(text.logits) + 1, len(text.forced) + 1)
            rows = [runner.run(self._feeds(text.source, text.forced[:length], 0)) for length in lengths]
            logits, figures = np.concatenate([row["logits"] for row in rows]), rows[-1]["figures"]
            feeds = self._feeds(text.source, self.model.prompt, new_tokens)
            started = time.perf_counter()
            output = runner.run(feeds)["tokens"][0]
            seconds.append(time.perf_counter() - started)
            tokens = [int(token) for token in output if token != PADDING]
            written.append(text._replace(tokens=tokens, logits=logits, figures=figures))
        expected, actual = (np.concatenate([text.logits for text in rows]) for rows in (self.texts, written))
        limit_db = BARS[variant.precision].logits_db
        accuracy = compare([expected], [actual], limit_db)
        variant.evidence["accuracy"] = {"logits": accuracy.as_json()}
        self.described[variant.name], reason = self.kind.judge(self, written, variant)
        if not accuracy.within_limit:
            reason = f"logits of the {self.kind.samples}: {accuracy}; {limit_db:g} dB is required"
        if reason:
            variant.reject(reason)
        return seconds, {}

    def _feeds(self, source: Source, prompt: Sequence[int], limit: int) -> dict[str, Array]:
        tokens = padded(prompt, prompt_size(self.model.config))
        return {**source.feeds, "prompt": tokens, "limit": np.array([limit], np.int64)}

    def _float_text(self, reference: ReferenceModel, source: Source) -> JudgedText:
        """Run the float reference. Raises EngineError: its logits are not finite."""
        encoded, prompt, config = reference.encode(source.values), self.model.prompt, self.model.config
        tokens = reference.generate(encoded, prompt, self.kind.new_tokens(config.context))
        forced = [*prompt, *tokens][: min(prompt_size(config), config.context - 1)]
        logits = reference.logits(encoded, forced, [])
        rows = logits if self.kind.judges_all else logits[-1:]
        if not np.isfinite(rows).all():
            raise EngineError(
                f"{self.model.name}: the float reference returns logits that are not finite; check the files"
            )
        return JudgedText(source, tokens, forced, rows, figures_of(0.0, logits[0], self.model.rules))


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


def prompt_size(config: EncoderDecoderConfig) -> int:
    """Return the size of the input ``prompt``."""
    return config.context if config.reads_text else PROMPT_TOKENS


def constants(model: EncoderDecoderModel, limit: int) -> dict[str, TensorInput]:
    """Return the constant inputs of a card: the prompt of a new text, and its maximum of new tokens."""
    prompt = padded([model.start], prompt_size(model.config))
    return {
        name: TensorInput(name, value.shape, value=tuple(map(float, value.ravel())), dtype="int64")
        for name, value in (("prompt", prompt), ("limit", np.array([limit], np.int64)))
    }


def with_folded_norms(model: Model) -> Model:
    """Return the model with norms' weights in the matrices that follow; the same if norms follow sums."""
    if model.config.form.norms_after:
        return model
    before = _norms_before(model.config)
    folded, shapes = set(before.values()), model.config.weight_shapes()

    def read(name: str) -> Array:
        layer, _, kind = name.rpartition(".")
        if layer in folded:
            like = model.weight(name)
            return np.ones_like(like) if kind == "weight" else np.zeros_like(like)
        value = model.weight(name)
        if layer not in before:
            return value
        if kind == "weight":
            return value * model.weight(f"{before[layer]}.weight")
        if f"{before[layer]}.bias" not in shapes:
            return value
        bias: Array = value + model.weight(f"{layer}.weight") @ model.weight(f"{before[layer]}.bias")
        return bias

    return replace(model, read=read)


def _norms_before(config: EncoderDecoderConfig) -> Mapping[str, str]:
    """Return layer -> the norm before it."""
    norms = {}
    for part, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            prefix = f"{part}.layers.{layer}."
            for projection in "qkv":
                norms[f"{prefix}self_attn.{projection}_proj"] = f"{prefix}self_attn_layer_norm"
            norms |= {f"{prefix}{product}": f"{prefix}final_layer_norm" for product in ("fc1", GATE)}
            if part == "decoder":
                norms[f"{prefix}encoder_attn.q_proj"] = f"{prefix}encoder_attn_layer_norm"
                norms |= {f"{prefix}{projection}": "encoder.layer_norm" for projection in HEARD}
    return norms

"""An encoder and a decoder of tokens as one variant: a run encodes features and generates tokens greedily.

``options["encoder_decoder"]`` of the artifact:

    {"heads": 6, "head_size": 64, "positions": 1500, "context": 448, "vocabulary": 51864, "layers": 4,
     "rules": {...}, "encoder": {...}, "decoder": {...}}

``encoder`` and ``decoder`` are the options of the two artifacts, whose files are in folders of these names.
Both were compiled and are loaded as any other model of the target. The decoder computes one token a run; its
caches lie in arrays of this module, into which each token's own keys and values are written.

    inputs    features float32 [1, mels, frames], prompt int64 [1, PROMPT_TOKENS] and limit int64 [1]
    outputs   tokens int64 [1, context], logits float32 [1, vocabulary], figures float32 [1, 2]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgekit.errors import EngineError, UsageError, reason_of
from edgekit.target.token_rules import TokenRules, log_probability, repeated_tail
from edgekit.tensor_spec import Array, Json, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Engine, Runner

OPTION = "encoder_decoder"
ENCODER, DECODER = "encoder", "decoder"
PROMPT_TOKENS = 16
"""Size of the input ``prompt``; shorter prompts are padded with PADDING."""
PADDING = -1
HIDDEN = np.float32(-1e9)
"""Added to the scores of positions that are not in the cache: their weights become 0."""
SURELY_SPEECH = -100.0
"""Log probability of no speech, of a model that has no token for it."""
_SIZES = ("heads", "head_size", "positions", "context", "vocabulary", "layers")


class EncoderDecoderShape(NamedTuple):
    """Sizes of the arrays between encoder and decoder.

    Attributes:
        heads: Number of attention heads.
        head_size: Size of one head.
        positions: Positions that the encoder returns keys and values of.
        context: Maximum tokens of a text with its prompt.
        vocabulary: Number of tokens.
        layers: Number of the decoder's layers.
    """

    heads: int
    head_size: int
    positions: int
    context: int
    vocabulary: int
    layers: int

    def cross(self) -> list[TensorSpec]:
        """Return the encoder's outputs, which are inputs of the decoder."""
        return self._by_layer("cross_", self.positions, "")

    def caches(self) -> list[TensorSpec]:
        """Return the decoder's inputs that hold the cache."""
        return self._by_layer("", self.context, "")

    def own_outputs(self) -> list[TensorSpec]:
        """Return the decoder's outputs with the keys and values of its token."""
        return self._by_layer("", 1, "/own")

    def _by_layer(self, before: str, rows: int, after: str) -> list[TensorSpec]:
        specs = []
        for layer in range(self.layers):
            for kind, size in (("key", (self.head_size, rows)), ("value", (rows, self.head_size))):
                specs.append(TensorSpec(f"{before}{kind}{layer}{after}", "float32", (self.heads, *size)))
        return specs

    def decoder_inputs(self) -> list[TensorSpec]:
        """Return all inputs of the decoder."""
        first = [TensorSpec("token", "int64", (1,)), TensorSpec("position", "int64", (1,))]
        return [*first, TensorSpec("mask", "float32", (1, 1, self.context)), *self.caches(), *self.cross()]

    def decoder_outputs(self) -> list[TensorSpec]:
        """Return all outputs of the decoder."""
        return [TensorSpec("logits", "float32", (1, self.vocabulary)), *self.own_outputs()]


def model_inputs(mels: int, frames: int) -> list[TensorSpec]:
    """Return the inputs of a variant: features, prompt, limit of new tokens."""
    prompt = TensorSpec("prompt", "int64", (1, PROMPT_TOKENS))
    return [TensorSpec("features", "float32", (1, mels, frames)), prompt, TensorSpec("limit", "int64", (1,))]


def model_outputs(shape: EncoderDecoderShape) -> list[TensorSpec]:
    """Return the outputs of a variant: new tokens, logits after the prompt, and two figures: the mean log
    probability of the new tokens, and the log probability that there is no speech."""
    tokens = TensorSpec("tokens", "int64", (1, shape.context))
    logits = TensorSpec("logits", "float32", (1, shape.vocabulary))
    return [tokens, logits, TensorSpec("figures", "float32", (1, 2))]


def part_of(files: Mapping[str, Path], part: str) -> dict[str, Path]:
    """Return the files of the encoder or of the decoder, by the names that the engine knows."""
    return {name.partition("/")[2]: path for name, path in files.items() if name.startswith(f"{part}/")}


def open_runner(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> EncoderDecoderRunner:
    """Load both parts; arguments and errors as ``Engine.open_runner``.

    Raises:
        EngineError: the option is malformed, or does not fit the bundle's inputs and outputs.
    """
    try:
        table = options[OPTION]
        shape = EncoderDecoderShape(*(int(table[name]) for name in _SIZES))
        rules = TokenRules.from_table(table["rules"])
        rules.check(shape.vocabulary)
        if min(shape) < 1 or list(outputs) != model_outputs(shape):
            raise ValueError("its sizes are not those of the bundle's outputs")
        part_options = dict(table[ENCODER]), dict(table[DECODER])
        features = next(spec for spec in inputs if spec.name == "features")
        if list(inputs) != model_inputs(*features.shape[1:]):
            raise ValueError("its inputs are not those of the bundle")
    except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as problem:
        raise EngineError(f"the variant's encoder and decoder are malformed: {reason_of(problem)}") from None
    encoder = engine.open_runner(part_of(files, ENCODER), [features], shape.cross(), part_options[0], threads)
    try:
        ends = shape.decoder_inputs(), shape.decoder_outputs()
        decoder = engine.open_runner(part_of(files, DECODER), *ends, part_options[1], threads)
    except BaseException:
        encoder.close()
        raise
    return EncoderDecoderRunner(encoder, decoder, shape, rules)


class EncoderDecoderRunner:
    """A loaded encoder and decoder: a ``Runner``."""

    def __init__(
        self, encoder: Runner, decoder: Runner, shape: EncoderDecoderShape, rules: TokenRules
    ) -> None:
        self.device, self.precision = decoder.device, decoder.precision
        self._encoder, self._decoder, self._shape, self._rules = encoder, decoder, shape, rules
        self._caches = {spec.name: spec.zeros() for spec in shape.caches()}
        self._token, self._position = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._mask = np.full((1, 1, shape.context), HIDDEN, np.float32)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Encode the features, read the prompt and generate tokens until the text ends.

        Raises:
            UsageError: the prompt or the limit is invalid.
            EngineError: the engine failed.
        """
        prompt, limit = self._checked(feeds)
        encoded = self._encoder.run({"features": feeds["features"]})
        step = self._stepper(encoded)
        rows = [step(token) for token in prompt]
        tokens, total, row = list[int](), 0.0, rows[-1]
        timed = self._rules.no_timestamps not in prompt
        while len(tokens) < limit:
            allowed = self._rules.allowed(row, tokens, timed)
            token = int(allowed.argmax())
            total += log_probability(row, token)
            if token == self._rules.end:
                break
            tokens.append(token)
            if repeated := repeated_tail([t for t in tokens if t < self._rules.timestamp_first]):
                tokens = _without_repeats(tokens, repeated, self._rules.timestamp_first)
                break
            if len(tokens) < limit:
                row = step(token)
        padded = np.full((1, self._shape.context), PADDING, np.int64)
        padded[0, : len(tokens)] = tokens
        figures = figures_of(total / (len(tokens) + 1), rows[0], self._rules)
        return {"tokens": padded, "logits": rows[-1][None], "figures": figures}

    def _checked(self, feeds: Mapping[str, Array]) -> tuple[list[int], int]:
        prompt = [int(token) for token in feeds["prompt"][0] if token != PADDING]
        if not prompt or not all(0 <= token < self._shape.vocabulary for token in prompt):
            raise UsageError(
                f"prompt must be 1 to {PROMPT_TOKENS} tokens below {self._shape.vocabulary}, then {PADDING}"
            )
        return prompt, max(0, min(int(feeds["limit"][0]), self._shape.context - len(prompt)))

    def _stepper(self, encoded: Mapping[str, Array]) -> Callable[[int], Array]:
        """Return a function that runs the next token and returns its logits, float32 [vocabulary]."""
        self._mask[...] = HIDDEN
        self._position[0] = -1
        feeds: dict[str, Array] = {
            "token": self._token,
            "position": self._position,
            "mask": self._mask,
            **self._caches,
            **encoded,
        }

        def step(token: int) -> Array:
            self._token[0] = token
            self._position[0] += 1
            outputs, position = self._decoder.run(feeds), int(self._position[0])
            for name, cache in self._caches.items():
                new_entry = outputs[f"{name}/own"]
                if name.startswith("key"):
                    cache[:, :, position : position + 1] = new_entry
                else:
                    cache[:, position : position + 1] = new_entry
            self._mask[0, 0, position] = 0
            row: Array = outputs["logits"][0]
            return row

        return step

    def facts(self) -> dict[str, Json]:
        """Return the facts of both parts."""
        return {ENCODER: self._encoder.facts(), DECODER: self._decoder.facts()}

    def close(self) -> None:
        """Free both parts."""
        self._encoder.close()
        self._decoder.close()


def figures_of(mean: float, first: Array, rules: TokenRules) -> Array:
    """Return the output ``figures``.

    Args:
        mean: Mean log probability of the new tokens; 0 without any.
        first: Logits after the prompt's first token, which the model's no-speech token is judged by.
        rules: Rules of the tokens.
    """
    silence = log_probability(first, rules.no_speech) if rules.no_speech >= 0 else SURELY_SPEECH
    return np.array([[mean, silence]], np.float32)


def _without_repeats(tokens: Sequence[int], repeated: int, timestamp_first: int) -> list[int]:
    """Drop the last ``repeated`` text tokens, and the timestamps between them."""
    places = [index for index, token in enumerate(tokens) if token < timestamp_first]
    return list(tokens[: places[-repeated - 1] + 1])

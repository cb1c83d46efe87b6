"""An encoder and a decoder of tokens as one variant: a run encodes a source and generates tokens greedily.

The source is a sound's features or its samples, or a text's tokens, whose embeddings are read here
(``EmbeddingTable``).

``options["encoder_decoder"]`` of the artifact:

    {"heads": 6, "head_size": 64, "positions": 1500, "context": 448, "vocabulary": 51864, "layers": 4,
     "rules": {...}, "encoder": {...}, "decoder": {...}}

of texts also ``"embedding": {...}, "pad": 0, "width": 512``, and of samples ``"window": 64000``.

``encoder`` and ``decoder`` are the options of the two artifacts, whose files are in folders of these names.
Both were compiled and are loaded as any other model of the target. The decoder computes one token a run; its
caches lie in arrays of this module, into which each token's own keys and values are written.

    inputs    features float32 [1, mels, frames], prompt int64 [1, PROMPT_TOKENS] and limit int64 [1];
              or source int64 [1, positions], padded, prompt int64 [1, context] and limit int64 [1];
              or samples float32 [1, window], mask float32 [1, window]: 1 for a sample and 0 for padding, and
              prompt and limit as with features
    outputs   tokens int64 [1, context], logits float32 [1, vocabulary], figures float32 [1, 2]

What a run has encoded and decoded is kept. The next one continues there if it has the same source, and its
prompt more tokens after the same ones. So a text can be written in parts, and each part be a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.errors import EngineError, UsageError, reason_of
from edgekit.generate.device.embedding_table import LEAST_SAMPLES, EmbeddingTable, stem_sizes
from edgekit.generate.device.token_rules import TextRules, TokenRules, log_probability
from edgekit.target import shapes
from edgekit.target.contract import Engine, Runner
from edgekit.target.registry import ACCELERATOR
from edgekit.tensor_spec import Array, Json, TensorSpec

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
FEATURES, SOURCE, SOURCE_MASK, EMBEDDED = "features", "source", "source_mask", "embedded"
SAMPLES, MASK, FRAME_WEIGHTS = "samples", "mask", "frame_weights"
Rules = TokenRules | TextRules


class EncoderDecoderShape(NamedTuple):
    """Sizes of the arrays between encoder and decoder.

    Attributes:
        positions: Positions that the encoder returns keys and values of.
        context: Maximum tokens of a text with its prompt.
        width: Size of an embedding, where the source is a text; 0: it is a sound.
        window: Number of samples, where these are the source; 0: they are not.
    """

    heads: int
    head_size: int
    positions: int
    context: int
    vocabulary: int
    layers: int
    width: int = 0
    window: int = 0

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
        mask = TensorSpec("mask", "float32", (1, 1, self.context))
        return [*first, mask, *self.caches(), *self.cross(), *self.source_mask()]

    def source_mask(self) -> list[TensorSpec]:
        """Return the input of both parts that hides the padding of a text or of samples; features have
        none."""
        is_padded = self.width or self.window
        return [TensorSpec(SOURCE_MASK, "float32", (1, 1, self.positions))] if is_padded else []

    def encoder_inputs(self, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
        """Return the inputs of the encoder.

        Args:
            inputs: Inputs of the variant, of which a sound's encoder takes the first.
        """
        if self.window:
            weights = TensorSpec(FRAME_WEIGHTS, "float32", (1, 1, stem_sizes(self.window)[0]))
            return [inputs[0], weights, *self.source_mask()]
        if not self.width:
            return [inputs[0]]
        return [TensorSpec(EMBEDDED, "float32", (self.positions, self.width)), *self.source_mask()]

    def decoder_outputs(self) -> list[TensorSpec]:
        """Return all outputs of the decoder."""
        return [TensorSpec("logits", "float32", (1, self.vocabulary)), *self.own_outputs()]


def model_inputs(mels: int, frames: int) -> list[TensorSpec]:
    """Return the inputs of a variant: features, prompt, limit of new tokens."""
    prompt = TensorSpec("prompt", "int64", (1, PROMPT_TOKENS))
    return [TensorSpec(FEATURES, "float32", (1, mels, frames)), prompt, TensorSpec("limit", "int64", (1,))]


def sample_inputs(window: int) -> list[TensorSpec]:
    """Return the inputs of a variant that reads samples: these, their mask, prompt, limit of new tokens."""
    sound = [TensorSpec(name, "float32", (1, window)) for name in (SAMPLES, MASK)]
    return [*sound, *model_inputs(1, 1)[1:]]


def text_inputs(positions: int, context: int) -> list[TensorSpec]:
    """Return the inputs of a variant that reads a text: its tokens, prompt, limit of new tokens."""
    source = TensorSpec(SOURCE, "int64", (1, positions))
    return [source, TensorSpec("prompt", "int64", (1, context)), TensorSpec("limit", "int64", (1,))]


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
) -> Runner:
    """Load both parts, for each shape if there are several; arguments as ``Engine.open_runner``.

    Raises:
        EngineError: the option is malformed, does not fit the bundle's inputs and outputs, or there is an
            accelerator.
    """
    if ACCELERATOR in options:
        raise EngineError("speech models run on the CPU only")
    if shapes.OPTION in options:
        opener = partial(_open_parts, engine)
        return shapes.open_runner(engine, files, inputs, outputs, options, threads, opener)
    return _open_parts(engine, files, inputs, outputs, options, threads)


def _open_parts(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> EncoderDecoderRunner:
    embedding, pad = None, 0
    try:
        table = options[OPTION]
        sizes = [int(table[name]) for name in _SIZES]
        kinds = {name: int(table.get(name, 0)) for name in ("width", "window")}
        shape = EncoderDecoderShape(*sizes)._replace(**kinds)
        if min(sizes) < 1 or min(kinds.values()) < 0 or list(outputs) != model_outputs(shape):
            raise ValueError("its sizes are not those of the bundle's outputs")
        is_text = "ends" in table["rules"]
        rules: Rules = (TextRules if is_text else TokenRules).from_table(table["rules"])
        if shape.window:
            expected = sample_inputs(shape.window)
            if stem_sizes(shape.window)[-1] != shape.positions:
                raise ValueError(f"{shape.window} samples do not have {shape.positions} positions")
        elif shape.width:
            embedding = EmbeddingTable(table["embedding"], files, shape.vocabulary, shape.width)
            pad, expected = int(table["pad"]), text_inputs(shape.positions, shape.context)
        else:
            expected = model_inputs(*next(spec for spec in inputs if spec.name == FEATURES).shape[1:])
        rules.check(shape.vocabulary)
        if list(inputs) != expected:
            raise ValueError("its inputs are not those of the bundle")
        part_options = dict(table[ENCODER]), dict(table[DECODER])
    except (AttributeError, KeyError, OSError, StopIteration, TypeError, ValueError) as problem:
        raise EngineError(f"the variant's encoder and decoder are malformed: {reason_of(problem)}") from None
    first = shape.encoder_inputs(inputs)
    encoder = engine.open_runner(part_of(files, ENCODER), first, shape.cross(), part_options[0], threads)
    try:
        ends = shape.decoder_inputs(), shape.decoder_outputs()
        decoder = engine.open_runner(part_of(files, DECODER), *ends, part_options[1], threads)
    except BaseException:
        encoder.close()
        raise
    return EncoderDecoderRunner(encoder, decoder, shape, rules, embedding, pad)


class EncoderDecoderRunner:
    """A loaded encoder and decoder: a ``Runner``.

    Args:
        embedding: Embedding of a text's tokens; None: the source is a sound.
        pad: Token that a text is padded with.
    """

    def __init__(
        self,
        encoder: Runner,
        decoder: Runner,
        shape: EncoderDecoderShape,
        rules: Rules,
        embedding: EmbeddingTable | None = None,
        pad: int = 0,
    ) -> None:
        self.device, self.precision = decoder.device, decoder.precision
        self._encoder, self._decoder, self._shape, self._rules = encoder, decoder, shape, rules
        self._embedding, self._pad = embedding, pad
        self._caches = {spec.name: spec.zeros() for spec in shape.caches()}
        self._token, self._position = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._mask = np.full((1, 1, shape.context), HIDDEN, np.float32)
        self._source: Array | None = None
        self._decoder_feeds: dict[str, Array] = {}
        self._tokens: list[int] = []
        self._first_row = np.zeros(0, np.float32)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Encode the source, read the prompt and generate tokens until the text ends.

        Raises:
            UsageError: the source, the prompt or the limit is invalid.
            EngineError: the engine failed.
        """
        prompt, limit = self._checked(feeds)
        source = self._source_of(feeds)
        if not self._continues(source, prompt):
            self._encode(source)
        for token in prompt[len(self._tokens) :]:
            row = self._step(token)
        first_row, allowed = self._first_row, self._rules.after(prompt)
        tokens, total = list[int](), 0.0
        while len(tokens) < limit:
            token = int(allowed(row, tokens).argmax())
            total += log_probability(row, token)
            if self._rules.is_end(token):
                break
            tokens.append(token)
            if (shorter := self._rules.without_loop(tokens)) is not None:
                tokens = shorter
                break
            if len(tokens) < limit:
                row = self._step(token)
        padded = np.full((1, self._shape.context), PADDING, np.int64)
        padded[0, : len(tokens)] = tokens
        figures = figures_of(total / (len(tokens) + 1), first_row, self._rules)
        return {"tokens": padded, "logits": row[None], "figures": figures}

    def _checked(self, feeds: Mapping[str, Array]) -> tuple[list[int], int]:
        longest = self._shape.context if self._embedding else PROMPT_TOKENS
        prompt = [int(token) for token in feeds["prompt"][0] if token != PADDING]
        if not prompt or not all(0 <= token < self._shape.vocabulary for token in prompt):
            raise UsageError(
                f"prompt must be 1 to {longest} tokens below {self._shape.vocabulary}, then {PADDING}"
            )
        return prompt, max(0, min(int(feeds["limit"][0]), self._shape.context - len(prompt)))

    def _continues(self, source: Array, prompt: Sequence[int]) -> bool:
        """Return whether the caches hold all but the last tokens of a run. A run that is repeated does not
        continue itself: it is timed as the first one."""
        length = len(self._tokens)
        if self._source is None or len(prompt) <= length or list(prompt[:length]) != self._tokens:
            return False
        return np.array_equal(self._source, source)

    def _source_of(self, feeds: Mapping[str, Array]) -> Array:
        """Return the source, of samples without padding. Where the mask is zero everywhere, all are samples:
        a run of zeros takes as long as the longest one."""
        if not self._shape.window:
            return feeds[SOURCE if self._embedding else FEATURES]
        places = np.flatnonzero(feeds[MASK])
        return feeds[SAMPLES][:, : int(places[-1]) + 1 if places.size else None]

    def _encode(self, source: Array) -> None:
        self._source, self._tokens = None, []
        self._mask[...] = HIDDEN
        if self._shape.window:
            feeds = self._sounding(source)
        else:
            table = self._embedding
            feeds = {FEATURES: source} if table is None else self._embedded(table, source[0])
        encoded = self._encoder.run(feeds)
        first: dict[str, Array] = {"token": self._token, "position": self._position, "mask": self._mask}
        masks = {name: array for name, array in feeds.items() if name == SOURCE_MASK}
        self._decoder_feeds = {**first, **self._caches, **encoded, **masks}
        self._source = source.copy()

    def _sounding(self, samples: Array) -> dict[str, Array]:
        """Return the inputs of the encoder for samples [1, n]."""
        padded = np.zeros((1, self._shape.window), np.float32)
        padded[:, : samples.shape[1]] = samples
        frames, _, positions = stem_sizes(max(samples.shape[1], LEAST_SAMPLES))
        weights = np.zeros((1, 1, stem_sizes(self._shape.window)[0]), np.float32)
        weights[..., :frames] = 1 / frames
        return {SAMPLES: padded, FRAME_WEIGHTS: weights, SOURCE_MASK: self._hidden_after(positions)}

    def _hidden_after(self, length: int) -> Array:
        """Return a mask of the scores that hides all positions after the first ones."""
        mask = np.zeros((1, 1, self._shape.positions), np.float32)
        mask[..., length:] = HIDDEN
        return mask

    def _embedded(self, embedding: EmbeddingTable, source: Array) -> dict[str, Array]:
        places = np.flatnonzero(source != self._pad)
        length = int(places[-1]) + 1 if len(places) else 0
        if not length or source[:length].min() < 0 or source.max() >= self._shape.vocabulary:
            raise UsageError(
                f"source must be tokens from 0 below {self._shape.vocabulary}, then {self._pad}; at least one"
            )
        embedded = np.zeros((self._shape.positions, self._shape.width), np.float32)
        embedded[:length] = embedding.rows(source[:length])
        return {EMBEDDED: embedded, SOURCE_MASK: self._hidden_after(length)}

    def _step(self, token: int) -> Array:
        """Run the next token and return its logits, float32 [vocabulary]."""
        position = len(self._tokens)
        self._token[0], self._position[0] = token, position
        outputs = self._decoder.run(self._decoder_feeds)
        for name, cache in self._caches.items():
            new_entry = outputs[f"{name}/own"]
            if name.startswith("key"):
                cache[:, :, position : position + 1] = new_entry
            else:
                cache[:, position : position + 1] = new_entry
        self._mask[0, 0, position] = 0
        self._tokens.append(token)
        row: Array = outputs["logits"][0]
        if not position:
            self._first_row = row
        return row

    def another(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], options: Mapping[str, Json]
    ) -> EncoderDecoderRunner:
        """Open both parts at another window, of an engine whose files have several."""
        table, (_, window) = options[OPTION], inputs[0].shape
        shape = self._shape._replace(window=window, positions=stem_sizes(window)[-1])
        encoder = self._encoder.another(shape.encoder_inputs(inputs), shape.cross(), table[ENCODER])  # type: ignore[attr-defined]
        ends = shape.decoder_inputs(), shape.decoder_outputs()
        decoder = self._decoder.another(*ends, table[DECODER])  # type: ignore[attr-defined]
        return EncoderDecoderRunner(encoder, decoder, shape, self._rules)

    def facts(self) -> dict[str, Json]:
        """Return the facts of both parts."""
        return {ENCODER: self._encoder.facts(), DECODER: self._decoder.facts()}

    def close(self) -> None:
        """Free both parts."""
        self._encoder.close()
        self._decoder.close()
        self._embedding, self._source, self._decoder_feeds = None, None, {}


def figures_of(mean: float, first: Array, rules: Rules) -> Array:
    """Return the output ``figures``.

    Args:
        mean: Mean log probability of the new tokens; 0 without any.
        first: Logits after the prompt's first token, which the model's no-speech token is judged by.
    """
    silence = log_probability(first, rules.no_speech) if rules.no_speech >= 0 else SURELY_SPEECH
    return np.array([[mean, silence]], np.float32)

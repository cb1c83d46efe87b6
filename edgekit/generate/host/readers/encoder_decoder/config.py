"""Sizes and form of an encoder-decoder: Whisper, Moonshine, T5, BART and Marian differ in what ``ModelForm``
lists.

Weights have the names of transformers' BART and Whisper, without ``model.``; those of T5 are renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.device.embedding_table import STEM
from edgekit.generate.device.token_rules import TextRules, TokenRules
from edgekit.generate.host.readers.language.activations import GELU
from edgekit.processing.transcripts.words import BYTE_LEVEL
from edgekit.tensor_spec import Array

EMBEDDING, HEAD = "decoder.embed_tokens.weight", "lm_head.weight"
POSITIONS, RELATIVE_BIAS = "embed_positions.weight", "relative_bias.weight"
EMBEDDING_NORM, LOGITS_BIAS = "layernorm_embedding", "final_logits_bias"
ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")
GATE = "fc1_gate"
STEM_NORM = "encoder.groupnorm"
SIZE_LIMITS = {
    "width": 8192, "heads": 256, "mlp_width": 65536, "encoder_layers": 128, "decoder_layers": 128,
    "mels": 256, "window": 1 << 21, "positions": 6000, "context": 8192, "vocabulary": 1 << 20,
}  # fmt: skip


class ModelForm(NamedTuple):
    """Traits in which encoder-decoders differ; the defaults are Whisper's.

    Attributes:
        head_size: Size of one head; 0: the width divided by the number of heads.
        rms: Whether norms are RMSNorm without a bias, else layer normalization.
        norms_after: Whether a layer normalizes each sum, else the input of each block. Only in the second
            case both parts end with a norm.
        embedding_norm: Whether both parts begin with a norm.
        norm_biases: Whether layer normalization has a bias.
        activation: GELU, GELU_TANH, RELU or SILU.
        decoder_activation: The decoder's, where it has another one; "": the same.
        gated: Parts whose MLP multiplies the activation by a second product.
        biases: Whether products of attention have biases.
        key_bias: Whether those of the keys have them too.
        mlp_biases: Whether products of the MLP have biases.
        buckets: Number of buckets of relative positions; 0: there are none.
        bucket_distance: Distance from which on all positions share a bucket.
        rotary: Number of a head's first values that positions rotate, in two halves; 0: none. Without
            buckets and rotation, positions are added to the embeddings.
        rotary_base: Base of the rotation's wavelengths.
        attention_scale: Factor of the scores; 0: 1 / sqrt(head_size).
        embedding_scale: Factor of the embeddings.
        logits_scale: Factor of the values that are multiplied by the output matrix.
        tied: Whether the embedding is also the matrix of the logits.
        logits_bias: Whether a bias is added to the logits.
    """

    head_size: int = 0
    rms: bool = False
    norm_eps: float = 1e-5
    norms_after: bool = False
    embedding_norm: bool = False
    norm_biases: bool = True
    activation: str = GELU
    decoder_activation: str = ""
    gated: tuple[str, ...] = ()
    biases: bool = True
    key_bias: bool = False
    mlp_biases: bool = True
    buckets: int = 0
    bucket_distance: int = 128
    rotary: int = 0
    rotary_base: float = 10_000.0
    attention_scale: float = 0.0
    embedding_scale: float = 1.0
    logits_scale: float = 1.0
    tied: bool = True
    logits_bias: bool = False

    @property
    def adds_positions(self) -> bool:
        """Return whether a table of positions is added to the embeddings."""
        return not self.buckets and not self.rotary

    def activation_of(self, part: str) -> str:
        """Return the activation of ``encoder`` or ``decoder``."""
        return (part == "decoder" and self.decoder_activation) or self.activation


class EncoderDecoderConfig(NamedTuple):
    """Sizes of the model.

    Attributes:
        width: Size of a position's values in both parts.
        mlp_width: Size of the hidden layer of each MLP.
        mels: Number of mel bands in the features; 0: the encoder reads tokens, or samples.
        positions: Positions of the encoder; features have twice as many frames.
        context: Maximum tokens of the decoder.
        window: Most samples that the encoder reads; 0: it reads features or tokens.
    """

    width: int
    heads: int
    mlp_width: int
    encoder_layers: int
    decoder_layers: int
    mels: int
    positions: int
    context: int
    vocabulary: int
    form: ModelForm = ModelForm()
    window: int = 0

    @property
    def reads_text(self) -> bool:
        """Return whether the encoder reads tokens."""
        return not self.mels and not self.window

    @property
    def head_size(self) -> int:
        return self.form.head_size or self.width // self.heads

    @property
    def inner(self) -> int:
        """Return the size of all heads together."""
        return self.heads * self.head_size

    @property
    def frames(self) -> int:
        """Return the number of feature frames in a window."""
        return 2 * self.positions

    @property
    def attention_scale(self) -> float:
        return self.form.attention_scale or self.head_size**-0.5

    @property
    def output_matrix(self) -> str:
        """Return the name of the matrix of the logits."""
        return EMBEDDING if self.form.tied else HEAD

    def sizes(self) -> dict[str, int]:
        """Return the numbers by name, without the form."""
        return {name: size for name, size in self._asdict().items() if name != "form"}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape by name of every weight."""
        return dict(self._shapes())

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        width, form = self.width, self.form
        if self.mels:
            yield "encoder.conv1.weight", (width, self.mels, 3)
            yield "encoder.conv2.weight", (width, width, 3)
            yield from ((f"encoder.conv{number}.bias", (width,)) for number in (1, 2))
        if self.window:
            sizes = (1, width, 2 * width, width)
            for number, (inputs, outputs, (kernel, _)) in enumerate(
                zip(sizes, sizes[1:], STEM, strict=False), 1
            ):
                yield f"encoder.conv{number}.weight", (outputs, inputs, kernel)
                yield (f"{STEM_NORM}.weight" if number == 1 else f"encoder.conv{number}.bias"), (outputs,)
            yield f"{STEM_NORM}.bias", (width,)
        yield EMBEDDING, (self.vocabulary, width)
        if not form.tied:
            yield HEAD, (self.vocabulary, width)
        if form.logits_bias:
            yield LOGITS_BIAS, (self.vocabulary,)
        parts = (
            ("encoder", self.encoder_layers, self.positions),
            ("decoder", self.decoder_layers, self.context),
        )
        for part, layers, rows in parts:
            if form.buckets:
                yield f"{part}.{RELATIVE_BIAS}", (form.buckets, self.heads)
            elif form.adds_positions:
                yield f"{part}.{POSITIONS}", (rows, width)
            if form.embedding_norm:
                yield from self._norm(f"{part}.{EMBEDDING_NORM}")
            if not form.norms_after:
                yield from self._norm(f"{part}.layer_norm")
            for layer in range(layers):
                yield from self._layer(f"{part}.layers.{layer}.", part == "decoder")

    def _layer(self, prefix: str, crosses: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
        width, form = self.width, self.form
        for attention in ("self_attn", "encoder_attn") if crosses else ("self_attn",):
            yield from self._norm(f"{prefix}{attention}_layer_norm")
            for part in ATTENTION:
                shape = (width, self.inner) if part == "out_proj" else (self.inner, width)
                yield f"{prefix}{attention}.{part}.weight", shape
                if form.biases and (part != "k_proj" or form.key_bias):
                    yield f"{prefix}{attention}.{part}.bias", shape[:1]
        yield from self._norm(f"{prefix}final_layer_norm")
        gate = [(GATE, self.mlp_width, width)] if prefix.partition(".")[0] in form.gated else []
        mlp = [("fc1", self.mlp_width, width), ("fc2", width, self.mlp_width)]
        for part, rows, columns in (*mlp, *(gate)):
            yield f"{prefix}{part}.weight", (rows, columns)
            if form.mlp_biases:
                yield f"{prefix}{part}.bias", (rows,)

    def _norm(self, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.weight", (self.width,)
        if not self.form.rms and self.form.norm_biases:
            yield f"{name}.bias", (self.width,)

    def matrices(self) -> list[str]:
        """Return the names of the matrices that products multiply by."""
        tables = (POSITIONS, RELATIVE_BIAS)
        shapes = self.weight_shapes().items()
        return [name for name, shape in shapes if len(shape) == 2 and not name.endswith(tables)]


@dataclass(frozen=True, eq=False)
class EncoderDecoderModel:
    """An opened model.

    Attributes:
        rules: Rules of the tokens that it may generate.
        tokenizer: Content of the ``tokenizer.json`` that has the texts of its tokens.
        source_format: Format of its file, in words.
        read: Function that reads a weight by name, as float32.
        family: ``Whisper``, ``Moonshine``, ``T5``, ``BART`` or ``Marian``.
        start: Token that every generated text starts with (``decoder_start_token_id``).
        special: Tokens without a text, besides those that the rules have.
        spelling: Spelling of texts in the vocabulary: BYTE_LEVEL or SENTENCEPIECE.
    """

    name: str
    config: EncoderDecoderConfig
    rules: TokenRules | TextRules
    tokenizer: bytes = field(repr=False)
    source_format: str
    sha256: str
    read: Callable[[str], Array] = field(repr=False)
    family: str
    start: int
    special: tuple[int, ...] = ()
    spelling: str = BYTE_LEVEL

    @property
    def prompt(self) -> list[int]:
        """Return the tokens that a generated text follows."""
        return [self.start]

    def at_shapes(self) -> list[EncoderDecoderModel]:
        """Return the model at the shapes that it is compiled at, ascending; the last one is this model."""
        return [self]

    def weight(self, name: str) -> Array:
        """Read a weight as float32, by its name in ``EncoderDecoderConfig.weight_shapes``.

        Raises:
            ModelError: the file has changed or cannot be read.
        """
        values = self.read(name)
        expected = self.config.weight_shapes()[name]
        if values.shape != expected:
            raise ModelError(
                f"{self.name}: weight {name} is {list(values.shape)}; its sizes require {list(expected)}"
            )
        return values


def rotary_angles(places: Array, form: ModelForm) -> Array:
    """Return the angles by which pairs of a head's values are rotated (Su et al. 2021), in float32.

    Args:
        places: Positions, int64 [rows].

    Returns:
        float32 [rows, rotary / 2].
    """
    steps = np.arange(0, form.rotary, 2, dtype=np.float32) / np.float32(form.rotary)
    angles: Array = places[:, None].astype(np.float32) / np.float32(form.rotary_base) ** steps
    return angles


def relative_buckets(distances: Array, buckets: int, bucket_distance: int, *, both_ways: bool) -> Array:
    """Return the bucket of relative positions (T5's ``_relative_position_bucket``), in its float32
    arithmetic.

    Args:
        distances: Position of the key minus that of the query, int64 [...].
        bucket_distance: Distance from which on all positions share a bucket.
        both_ways: Whether later keys have buckets of their own; else they share that of the distance 0.
    """
    first = np.zeros_like(distances)
    if both_ways:
        buckets //= 2
        first = (distances > 0) * buckets
        apart = np.abs(distances)
    else:
        apart = np.maximum(-distances, 0)
    exact = buckets // 2
    ratio = np.maximum(apart, 1).astype(np.float32) / np.float32(exact)
    steps = np.log(ratio) / np.float32(np.log(bucket_distance / exact)) * np.float32(buckets - exact)
    far = np.minimum(exact + steps.astype(np.int64), buckets - 1)
    numbers: Array = first + np.where(apart < exact, apart, far)
    return numbers


def check_sizes(config: EncoderDecoderConfig, location: str) -> None:
    """Check the sizes that a file declares, before anything is allocated.

    Raises:
        ModelError: a size is outside its limits.
    """
    for name, limit in SIZE_LIMITS.items():
        size = getattr(config, name)
        smallest = 0 if name in ("mels", "window") else 1
        if type(size) is not int or not smallest <= size <= limit:
            raise ModelError(f"{location}: {name} is {str(size)[:20]}; it must be from {smallest} to {limit}")
    if not config.form.head_size and config.width % config.heads:
        raise ModelError(f"{location}: a width of {config.width} cannot be divided into {config.heads} heads")
    if config.context < 16:
        raise ModelError(f"{location}: has a context of {config.context} tokens; at least 16 are needed")

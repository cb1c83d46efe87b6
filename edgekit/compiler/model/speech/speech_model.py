"""Encoder-decoder that turns speech into tokens (Whisper), from any source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edgekit.errors import ModelError
from edgekit.target.token_rules import TokenRules
from edgekit.tensor_spec import Array

EMBEDDING = "decoder.embed_tokens.weight"
POSITIONS = "embed_positions.weight"
NORM_EPS = 1e-5
"""Epsilon of all layer normalizations; PyTorch's default, which Whisper uses."""
ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")
SIZE_LIMITS = {
    "width": 8192, "heads": 256, "mlp_width": 65536, "encoder_layers": 128, "decoder_layers": 128,
    "mels": 256, "positions": 6000, "context": 8192, "vocabulary": 1 << 20,
}  # fmt: skip


class SpeechConfig(NamedTuple):
    """Sizes of the model.

    Attributes:
        width: Size of a position's values in both parts.
        heads: Number of attention heads in both parts.
        mlp_width: Size of the hidden layer of each MLP.
        encoder_layers, decoder_layers: Number of layers.
        mels: Number of mel bands in the features.
        positions: Positions of the encoder; features have twice as many frames.
        context: Maximum tokens of the decoder.
        vocabulary: Number of tokens.
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

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def frames(self) -> int:
        """Return the number of feature frames in a window."""
        return 2 * self.positions

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape by name of every weight; names are those of transformers, without ``model.``."""
        width, shapes = self.width, dict[str, tuple[int, ...]]()
        shapes["encoder.conv1.weight"] = (width, self.mels, 3)
        shapes["encoder.conv2.weight"] = (width, width, 3)
        shapes |= {f"encoder.conv{number}.bias": (width,) for number in (1, 2)}
        shapes[f"encoder.{POSITIONS}"] = (self.positions, width)
        shapes[f"decoder.{POSITIONS}"] = (self.context, width)
        shapes[EMBEDDING] = (self.vocabulary, width)
        for part, layers in (("encoder", self.encoder_layers), ("decoder", self.decoder_layers)):
            shapes |= _norm_shapes(f"{part}.layer_norm", width)
            for layer in range(layers):
                shapes |= self._layer_shapes(f"{part}.layers.{layer}.", part == "decoder")
        return shapes

    def _layer_shapes(self, prefix: str, crosses: bool) -> dict[str, tuple[int, ...]]:
        width, shapes = self.width, dict[str, tuple[int, ...]]()
        for attention in ("self_attn", "encoder_attn") if crosses else ("self_attn",):
            shapes |= _norm_shapes(f"{prefix}{attention}_layer_norm", width)
            for part in ATTENTION:
                shapes[f"{prefix}{attention}.{part}.weight"] = (width, width)
                if part != "k_proj":
                    shapes[f"{prefix}{attention}.{part}.bias"] = (width,)
        shapes |= _norm_shapes(f"{prefix}final_layer_norm", width)
        for part, rows, columns in (("fc1", self.mlp_width, width), ("fc2", width, self.mlp_width)):
            shapes[f"{prefix}{part}.weight"], shapes[f"{prefix}{part}.bias"] = (rows, columns), (rows,)
        return shapes


def _norm_shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


class SoundFormat(NamedTuple):
    """Settings of the log-mel features.

    Attributes:
        rate: Sample rate in Hz.
        frame: Samples of a frame, also the points of its Fourier transform.
        hop: Samples from one frame to the next.
    """

    rate: int = 16000
    frame: int = 400
    hop: int = 160


class SpokenTokens(NamedTuple):
    """Special tokens of the prompt.

    Attributes:
        start: Token that every text starts with.
        languages: Language code -> token; empty: the model knows one language and has no such tokens.
        transcribe: Token that asks for the spoken language; None: not needed.
    """

    start: int
    languages: Mapping[str, int]
    transcribe: int | None


@dataclass(frozen=True, eq=False)
class SpeechModel:
    """An opened model.

    Attributes:
        name: Name of the model.
        config: Its sizes.
        sound: Settings of its features.
        tokens: Special tokens of the prompt.
        rules: Rules of the tokens that it may generate.
        tokenizer: Content of its ``tokenizer.json``.
        source_format: Format of its file, in words.
        sha256: Hash of its files.
    """

    name: str
    config: SpeechConfig
    sound: SoundFormat
    tokens: SpokenTokens
    rules: TokenRules
    tokenizer: bytes
    source_format: str
    sha256: str
    read: Callable[[str], Array] = field(repr=False)

    def weight(self, name: str) -> Array:
        """Read a weight as float32, by its name in ``SpeechConfig.weight_shapes``.

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


def check_sizes(config: SpeechConfig, location: str) -> None:
    """Check the sizes that a file declares, before anything is allocated.

    Raises:
        ModelError: a size is outside its limits.
    """
    for name, limit in SIZE_LIMITS.items():
        size = getattr(config, name)
        if type(size) is not int or not 1 <= size <= limit:
            raise ModelError(f"{location}: {name} is {str(size)[:20]}; it must be from 1 to {limit}")
    if config.width % config.heads:
        raise ModelError(f"{location}: a width of {config.width} cannot be divided into {config.heads} heads")
    if config.context < 16:
        raise ModelError(f"{location}: has a context of {config.context} tokens; at least 16 are needed")

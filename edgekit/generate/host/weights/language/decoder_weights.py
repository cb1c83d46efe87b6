"""Quantize a language model's weights, layer by layer, with the inputs that each layer has by then.

The calibration text goes through the model one layer at a time, in numpy: memory holds one layer's weights.
Inputs of a layer hold the rounding errors of those before it, which it can then compensate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from edgekit.errors import UsageError
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.graphs.language.decoder_writer import EMBEDDING, HEAD
from edgekit.generate.host.readers.language.activations import GELU_TANH
from edgekit.generate.host.readers.language.language_model import ROUTER, LanguageModel
from edgekit.generate.host.weights.language.block_rounding import centred4, fitted4, nearest8
from edgekit.system.progress import counted
from edgekit.system.scratch_file import ScratchFile
from edgekit.target.precisions import TABLE, precision_of
from edgekit.tensor_spec import Array

BLOCK = 32
"""Inputs that share a scale of 4 bits: GGUF's, and the smallest of every engine's kernels."""
INT8_BLOCKS = (128, 64, BLOCK)
"""Inputs that share a scale of 8 bits: the first that divides a matrix's inputs. Figures of 128 and 32:
docs/measured/language-models.md."""
SEQUENCE = 256
"""Tokens that see each other in calibration."""
SEQUENCES = 16
"""Sequences of the calibration text that are used."""
ATTENTION = "self_attn"
"""Matrices of attention are an eighth of a layer's weights in Qwen2.5-Coder-0.5B, and lose as much as the
other seven when they are rounded to 4 bits: divergence .0160 with them and .0083 without, on prose."""
KEPT_BITS = 6
"""Bits of a file's matrix from which on it is not rounded to 4: the file's maker gave more bits to what loses
most by rounding, e.g. half of the down projections of a Q4_K_M file."""
BARS = {row.name: row.language for row in TABLE if row.language is not None}
"""Precision -> what it must reach, from the most accurate to the smallest."""
PRECISIONS = tuple(name for name in BARS if not precision_of(name).is_float)


class NearestWeights(Mapping[str, BlockWeights]):
    """Matrices of a model as int8. One is rounded when it is first read, and then lies on pages of a file.

    Args:
        block: Inputs that share a scale. 0 means all of them, None the first of INT8_BLOCKS that fits.
    """

    def __init__(self, model: LanguageModel, names: Sequence[str], block: int | None = None) -> None:
        self._model, self._names, self._block = model, dict.fromkeys(names), block
        self._scratch, self._rounded = ScratchFile(), dict[str, BlockWeights]()

    def __getitem__(self, name: str) -> BlockWeights:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._rounded:
            rounded = rounded8(self._model.weight(name), self._block)
            self._rounded[name] = rounded.kept(self._scratch)
        return self._rounded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def rounded8(matrix: Array, block: int | None = None) -> BlockWeights:
    """Round a matrix to int8 by ``nearest8``. ``block`` None means the first of INT8_BLOCKS that fits."""
    if block is None:
        block = next(size for size in INT8_BLOCKS if matrix.shape[1] % size == 0)
    return nearest8(matrix, block)


def quantize_decoder(
    model: LanguageModel,
    precision: str,
    tokens: Sequence[int] = (),
    *,
    block: int | None = None,
) -> Mapping[str, BlockWeights]:
    """Quantize the matrices of a model to integers.

    ``int8``: to the nearest, symmetric. ``int4``: with a scale and a minimum for each block, on the file's
    own grid where it has one of 4 bits, else fitted to the calibration text; 8 bits for the embedding, the
    output matrix, attention where the file has no such grid, and what a file of several types has in
    KEPT_BITS or more.

    Args:
        tokens: A calibration text; needed for ``int4`` where the file has other than 4-bit weights. The first
            SEQUENCE * SEQUENCES are used.
        block: Inputs that share a scale; 0 means all of them, for ``int8`` only. None means BLOCK for 4 bits,
            and the first of INT8_BLOCKS that divides the inputs for 8. A matrix whose inputs it, or BLOCK,
            does not divide stays float.

    Returns:
        Name -> integers, which are not on the heap: computed when they are read, or on pages of a file.

    Raises:
        OSError: the temporary folder has no room.
        UsageError: an unknown precision, no calibration text where one is needed, or a model with experts,
            which are not fitted.
        ModelError: the model's file has changed or can't be read.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"language models are quantized to {', '.join(PRECISIONS)}, not {precision}")
    shapes, multiple = model.config.weight_shapes(), BLOCK if block is None else max(1, block)
    matrices = [
        name
        for name, shape in shapes.items()
        if len(shape) == 2 and shape[1] % multiple == 0 and not name.endswith(ROUTER)
    ]
    ends = [name for name in matrices if name in (EMBEDDING, HEAD)]
    if not BARS[precision].fitted:
        return NearestWeights(model, matrices, block)
    if model.config.experts:
        raise UsageError(f"experts are not rounded to {precision}; build int8")
    scratch = ScratchFile()
    blocks = {name: rounded8(model.weight(name), block).kept(scratch) for name in ends}
    layers = [name for name in matrices if name not in ends]
    blocks |= _kept(model, layers, block, scratch)
    block = BLOCK if block is None else block
    left = [name for name in layers if name not in blocks]
    if not left:
        return blocks
    if len(tokens) < 2 * SEQUENCE:
        raise UsageError(
            f"int4 is fitted to a text, which needs at least {2 * SEQUENCE} tokens; this one has "
            f"{len(tokens)}"
        )
    count = min(len(tokens) // SEQUENCE, SEQUENCES)
    text = np.array(tokens[: count * SEQUENCE]).reshape(count, SEQUENCE)
    return _fitted(model, text, set(left), blocks, block, scratch)


def _kept(
    model: LanguageModel, names: Sequence[str], block: int | None, scratch: ScratchFile
) -> dict[str, BlockWeights]:
    """Return the matrices that are not fitted: those on a grid of 4 bits, attention's as int8, and, in a file
    that gives some matrices KEPT_BITS or more and others fewer, the former as int8."""
    kept, wide, fewest = dict[str, BlockWeights](), dict[str, BlockWeights](), KEPT_BITS
    for name in names:
        packed = model.packed(name)
        fewest = min(fewest, packed.bits if packed is not None else KEPT_BITS)
        if packed is not None and packed.bits == 4 and packed.block == (block or BLOCK):
            kept[name] = centred4(packed.integers, packed.scales, packed.minima).kept(scratch)
        elif ATTENTION in name:
            kept[name] = rounded8(model.weight(name), block).kept(scratch)
        elif packed is not None and packed.bits >= KEPT_BITS:
            wide[name] = rounded8(packed.values(), block).kept(scratch)
    return kept | wide if fewest < KEPT_BITS else kept


def _fitted(
    model: LanguageModel,
    text: Array,
    names: set[str],
    blocks: Mapping[str, BlockWeights],
    block: int,
    scratch: ScratchFile,
) -> dict[str, BlockWeights]:
    """Quantize the matrices of ``names``, in the order in which the text passes through them."""
    config, quantized = model.config, dict(blocks)
    x = model.weight(EMBEDDING)[text] * np.float32(config.embedding_scale)

    def product(inputs: Array, *matrices: str) -> list[Array]:
        if fitted := [name for name in matrices if name in names]:
            flat = inputs.reshape(-1, inputs.shape[-1])
            floats = [model.weight(name) for name in fitted]
            together = fitted4(np.concatenate(floats), flat.T @ flat / len(flat), block)
            start = 0
            for name, matrix in zip(fitted, floats, strict=True):
                quantized[name] = together.rows(slice(start, start + len(matrix))).kept(scratch)
                start += len(matrix)
        return [inputs @ (quantized[n].floats() if n in quantized else model.weight(n)).T for n in matrices]

    for layer in counted(range(config.layers), "layers", name="fitted"):
        x = run_layer(model, layer, x, product)
    return quantized


def run_layer(model: LanguageModel, layer: int, x: Array, product: Callable[..., list[Array]]) -> Array:
    """Compute one layer on x, float32 [sequences, tokens, width].

    Args:
        product: (inputs, names of matrices) -> the products with each transposed matrix.
    """
    c, prefix = model.config, f"model.layers.{layer}."

    def norm(values: Array, name: str) -> Array:
        mean = (values**2).mean(axis=-1, keepdims=True)
        normed: Array = values / np.sqrt(mean + np.float32(c.norm_eps)) * model.weight(prefix + name)
        return normed

    names = [f"{prefix}self_attn.{letter}_proj.weight" for letter in "qkv"]
    qkv = product(norm(x, "input_layernorm.weight"), *names)
    if c.qkv_bias:
        qkv = [
            y + model.weight(f"{prefix}self_attn.{letter}_proj.bias")
            for y, letter in zip(qkv, "qkv", strict=True)
        ]
    heads = []
    for y, count in zip(qkv, (c.heads, c.kv_heads, c.kv_heads), strict=True):
        heads.append(y.reshape(*y.shape[:2], count, c.head_size).swapaxes(1, 2))
    if c.qk_norm:
        heads[0] = norm(heads[0], "self_attn.q_norm.weight")
        heads[1] = norm(heads[1], "self_attn.k_norm.weight")
    y = product(_attended(model, layer, *heads), f"{prefix}self_attn.o_proj.weight")[0]
    x = x + (norm(y, "post_attention_layernorm.weight") if c.output_norms else y)
    before = "pre_feedforward_layernorm.weight" if c.output_norms else "post_attention_layernorm.weight"
    gate, hidden = product(norm(x, before), f"{prefix}mlp.gate_proj.weight", f"{prefix}mlp.up_proj.weight")
    if c.activation == GELU_TANH:
        gate = 0.5 * gate * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (gate + 0.044715 * gate**3)))
    else:
        gate = gate / (1 + np.exp(-np.maximum(gate, -80)))
    y = product(gate * hidden, f"{prefix}mlp.down_proj.weight")[0]
    result: Array = x + (norm(y, "post_feedforward_layernorm.weight") if c.output_norms else y)
    return result


def _attended(model: LanguageModel, layer: int, q: Array, k: Array, v: Array) -> Array:
    """Compute the attention of each sequence to itself: [sequences, heads, tokens, head_size] -> [.., tokens,
    width]."""
    c, count, half = model.config, q.shape[2], model.config.head_size // 2
    angles = np.outer(np.arange(count), c.inverse_frequencies(layer))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    rotated = []
    for y in (q, k):
        a, b = y[..., :half], y[..., half:]
        rotated.append(np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1))
    distance = np.arange(count)[:, None] - np.arange(count)
    mask = distance >= 0
    if c.sliding_window and c.sliding_layers and c.sliding_layers[layer]:
        mask &= distance < c.sliding_window
    shared = c.heads // c.kv_heads
    whole = np.empty((len(q), count, c.heads, c.head_size), np.float32)
    for sequence in range(len(q)):
        for head in range(c.heads):
            scores = rotated[0][sequence, head] @ rotated[1][sequence, head // shared].T
            scores = scores * np.float32(c.attention_scale)
            if c.attention_softcap:
                scores = c.attention_softcap * np.tanh(scores / c.attention_softcap)
            scores = np.where(mask, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            whole[sequence, :, head] = weights @ v[sequence, head // shared]
    return whole.reshape(len(q), count, -1)

"""Turn the channels of a decoder against each other, so that one scale for a whole row of int8 is enough.

Rows of weights and of activations with a few large channels lose the small ones to rounding. An orthogonal
matrix spreads every channel over all others, and the model stays the same (QuaRot: Ashkboos et al. 2024,
arXiv 2404.00456). No text is needed for it, and nearly all of it is done beforehand:

    between layers      x becomes x R: embedding E R, what reads it W diag(norm) R, what writes it R^T W
    values of a head    v becomes v V: rows of v_proj, and columns of o_proj
    inputs of down      blocks of them are multiplied by D when the model runs, columns of down_proj before

A head that is the embedding too has E R, so that what the last norm gives is multiplied by R^T diag(norm) R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from edgekit.generate.host.graphs.language.decoder_writer import EMBEDDING, HEAD
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.tensor_spec import Array

LARGEST_FACTOR = 128
"""Of a rotation: a width of 2048 is turned by matrices of 128 and 16. And the size of D at most."""
PART_VALUES = 1 << 20
"""Values that are turned at one time: a step has two copies of them."""
LEAST_BLOCK = 16
"""Blocks of down's inputs that are smaller are not turned: a large channel would be spread over few."""
LAST_NORM = "model.norm.weight"


class RotatedModel(NamedTuple):
    """A model whose channels are turned.

    Attributes:
        model: With the new weights. Norms of ``folded`` are in the matrices after them, and 1 here.
        before_head: float32 [width, width]: what the last norm gives is multiplied by it before the head;
            None: by nothing.
        before_down: float32 [block, block]: what each block of down's inputs is multiplied by; None: nothing.
    """

    model: LanguageModel
    folded: frozenset[str]
    before_head: Array | None
    before_down: Array | None


def rotated_model(model: LanguageModel) -> RotatedModel:
    """Return the same model with rotated channels.

    Where an architecture normalizes what attention and the MLP give (Gemma), what is between layers stays.
    Weights are read, and turned, when they are asked for.
    """
    c = model.config
    norms = () if c.output_norms else ("input_layernorm", "post_attention_layernorm")
    folded = {f"model.layers.{layer}.{norm}.weight" for layer in range(c.layers) for norm in norms}
    between = None if c.output_norms else _Rotation(c.width)
    if between is not None:
        folded.add(LAST_NORM)
    values, down = _Rotation(c.head_size), _block_rotation(c.mlp_width)

    def read(name: str) -> Array:
        weight = model.weight(name)
        if name in folded:
            return np.ones_like(weight)
        layer, _, kind = name.rpartition("layers.")[2].partition(".")
        if between is not None:
            norm = _NORM_BEFORE.get(kind)
            if norm is not None:
                weight = between(weight, model.weight(f"model.layers.{layer}.{norm}"))
            elif name == EMBEDDING:
                weight = between(weight)
            elif name == HEAD:
                weight = between(weight, model.weight(LAST_NORM))
            elif kind in _WRITES_BETWEEN:
                weight = between(weight.T).T
        if kind.startswith("self_attn.v_proj"):
            heads = weight.reshape(c.kv_heads, c.head_size, -1).swapaxes(1, 2)
            weight = values(heads).swapaxes(1, 2).reshape(weight.shape)
        elif kind == "self_attn.o_proj.weight":
            weight = values(weight.reshape(c.width, c.heads, c.head_size)).reshape(weight.shape)
        elif kind == "mlp.down_proj.weight" and down is not None:
            weight = (weight.reshape(c.width, -1, len(down)) @ down).reshape(weight.shape)
        contiguous: Array = np.ascontiguousarray(weight, np.float32)
        return contiguous

    before_head = None
    if between is not None and c.tied_embedding:
        rotation = between(np.eye(c.width, dtype=np.float32))
        before_head = rotation.T @ (rotation * model.weight(LAST_NORM)[:, None])
    rotated = replace(model, read=read, read_packed=lambda name: None)
    return RotatedModel(rotated, frozenset(folded), before_head, down)


_NORM_BEFORE = {
    **{f"self_attn.{projection}_proj.weight": "input_layernorm.weight" for projection in "qkv"},
    **{f"mlp.{projection}_proj.weight": "post_attention_layernorm.weight" for projection in ("gate", "up")},
}
"""A matrix of a layer -> the norm before it."""
_WRITES_BETWEEN = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


class _Rotation:
    """Products with one orthogonal matrix: random signs, then a matrix for each factor of the size."""

    def __init__(self, size: int) -> None:
        self._factors = _factors(size)
        self._signs = np.random.default_rng(size).choice(np.array([-1, 1], np.float32), size)

    def __call__(self, rows: Array, norm: Array | None = None) -> Array:
        """Multiply ``rows`` [..., size], and before by ``norm`` [size], by the matrix, float32."""
        rotated = np.empty(rows.shape, np.float32)
        signs = self._signs if norm is None else self._signs * norm
        step = max(1, PART_VALUES * len(rows) // max(1, rows.size))
        for start in range(0, len(rows), step):
            product, after = rows[start : start + step] * signs, rows.shape[-1]
            shape = product.shape
            for factor in self._factors:
                after //= len(factor)
                product = factor @ product.reshape(-1, len(factor), after)
            rotated[start : start + step] = product.reshape(shape)
        return rotated


def _factors(size: int) -> Sequence[Array]:
    """Return orthogonal matrices whose sizes have ``size`` as their product."""
    odd = size
    while odd % 2 == 0:
        odd //= 2
    factors, rest = ([] if odd == 1 else [_cosines(odd)]), size // odd
    while rest > 1:
        factors.append(_hadamard(min(rest, LARGEST_FACTOR)))
        rest //= len(factors[-1])
    return factors


def _block_rotation(size: int) -> Array | None:
    """Return a rotation for blocks of the largest power of 2, up to LARGEST_FACTOR, that divides ``size``;
    None if they would be small."""
    block = min(size & -size, LARGEST_FACTOR)
    return None if block < LEAST_BLOCK else _hadamard(block)


def _hadamard(size: int) -> Array:
    """Sylvester's matrix of a power of 2, orthogonal and symmetric, float32."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.float32(np.sqrt(size))


def _cosines(size: int) -> Array:
    """Return the discrete cosine transform (DCT-II), orthogonal, float32."""
    angles = np.pi / size * np.outer(np.arange(size), np.arange(size) + 0.5)
    cosines = np.sqrt(2 / size) * np.cos(angles)
    cosines[0] /= np.sqrt(2)
    transform: Array = cosines.astype(np.float32)
    return transform

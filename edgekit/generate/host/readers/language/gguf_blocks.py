"""Element types of GGUF: size and content of a block.

Every quantized type is read as integers, a scale and a minimum a block: value = integer * scale + minimum. In
float32 this is what ggml computes, bit for bit: products of its float16 scales, 6- or 8-bit block scales and
integers are exact, so one rounding is left, that of the sum. Layouts: ``ggml-common.h`` and
``dequantize_row_*`` in ``ggml-quants.c`` (ggml-org/llama.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from edgekit.generate.host.readers.language.language_model import PackedWeight
from edgekit.tensor_spec import Array

Unpacked = tuple[Array, Array, Array]
"""integers uint8 [blocks, size], scales and minima float32 [blocks, size / shared]."""


PART_BLOCKS = 1 << 16
"""Blocks that become floats at one time: an embedding's integers, scales and floats are not all in memory."""


class ElementType(NamedTuple):
    """Element type of GGUF tensors.

    Attributes:
        block: Number of values in a block.
        size_bytes: Size of a block in bytes.
        bits: Bits of an integer; 0: floats.
        shared: Number of values that share a scale.
        unpack: uint8 [blocks, size_bytes] -> Unpacked; None: floats.
    """

    name: str
    block: int
    size_bytes: int
    bits: int = 0
    shared: int = 0
    unpack: Callable[[Array], Unpacked] | None = None


def read_values(kind: ElementType, raw: Array, shape: tuple[int, ...]) -> Array:
    """Return the values of a tensor, float32.

    Args:
        raw: Its bytes, uint8.
        shape: Its last dimension is a multiple of the block.
    """
    if kind.unpack is not None:
        values = np.empty(shape, np.float32)
        blocks, flat = raw.reshape(-1, kind.size_bytes), values.reshape(-1, kind.block)
        for start in range(0, len(blocks), PART_BLOCKS):
            part = blocks[start : start + PART_BLOCKS]
            flat[start : start + len(part)] = read_packed(kind, part, (len(part), kind.block)).values()
        return values
    if kind.name == "BF16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return raw.view("<f2" if kind.name == "F16" else "<f4").astype(np.float32).reshape(shape)


def read_packed(kind: ElementType, raw: Array, shape: tuple[int, ...]) -> PackedWeight:
    """Return a quantized tensor as integers and scales; arguments like those of ``read_values``."""
    assert kind.unpack is not None
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    integers, scales, minima = kind.unpack(raw.reshape(-1, kind.size_bytes))
    return PackedWeight(
        kind.bits, kind.shared, integers.reshape(rows, columns),
        scales.reshape(rows, columns // kind.shared), minima.reshape(rows, columns // kind.shared),
    )  # fmt: skip


def _half(raw: Array, offset: int) -> Array:
    """Return the float16 at a byte of every block, float32 [blocks, 1]."""
    return np.ascontiguousarray(raw[:, offset : offset + 2]).view("<f2").astype(np.float32)


def _nibbles(raw: Array) -> Array:
    """Unpack [blocks, n] bytes into [blocks, 2 n]: all low halves, then all high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def _fifth_bits(raw: Array, offset: int) -> Array:
    """Return 32 bits of every block, least significant first, as 0 or 16."""
    return np.unpackbits(raw[:, offset : offset + 4], axis=1, bitorder="little") << 4


def _q4_0(raw: Array) -> Unpacked:
    scale = _half(raw, 0)
    return _nibbles(raw[:, 2:]), scale, -8 * scale


def _q4_1(raw: Array) -> Unpacked:
    return _nibbles(raw[:, 4:]), _half(raw, 0), _half(raw, 2)


def _q5_0(raw: Array) -> Unpacked:
    scale = _half(raw, 0)
    return _nibbles(raw[:, 6:]) | _fifth_bits(raw, 2), scale, -16 * scale


def _q5_1(raw: Array) -> Unpacked:
    return _nibbles(raw[:, 8:]) | _fifth_bits(raw, 4), _half(raw, 0), _half(raw, 2)


def _q8_0(raw: Array) -> Unpacked:
    scale = _half(raw, 0)
    return raw[:, 2:] ^ 0x80, scale, -128 * scale  # two's complement, and 128


def _block_scales(raw: Array) -> tuple[Array, Array]:
    """Unpack 8 scales and 8 minima of 6 bits from 12 bytes (``get_scale_min_k4``), float32 [blocks, 8]."""
    low, middle, high = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=1)
    return _half(raw, 0) * scales.astype(np.float32), -_half(raw, 2) * minima.astype(np.float32)


def _q4_k(raw: Array) -> Unpacked:
    quarters = raw[:, 16:].reshape(-1, 4, 1, 32)
    integers = np.concatenate([quarters & 15, quarters >> 4], axis=2)
    return integers.reshape(-1, 256), *_block_scales(raw)


def _q5_k(raw: Array) -> Unpacked:
    quarters = raw[:, 48:].reshape(-1, 4, 1, 32)
    integers = np.concatenate([quarters & 15, quarters >> 4], axis=2).reshape(-1, 8, 32)
    high = raw[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1) & 1
    return (integers | high << 4).reshape(-1, 256), *_block_scales(raw)


def _q6_k(raw: Array) -> Unpacked:
    low = raw[:, :128].reshape(-1, 2, 1, 2, 32)
    high = raw[:, 128:192].reshape(-1, 2, 1, 32)
    integers = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    integers |= (high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3) << 4
    scales = _half(raw, 208) * raw[:, 192:208].view(np.int8).astype(np.float32)
    return integers.reshape(-1, 256), scales, -32 * scales


ELEMENT_TYPES: Mapping[int, ElementType] = {
    0: ElementType("F32", 1, 4),
    1: ElementType("F16", 1, 2),
    2: ElementType("Q4_0", 32, 18, 4, 32, _q4_0),
    3: ElementType("Q4_1", 32, 20, 4, 32, _q4_1),
    6: ElementType("Q5_0", 32, 22, 5, 32, _q5_0),
    7: ElementType("Q5_1", 32, 24, 5, 32, _q5_1),
    8: ElementType("Q8_0", 32, 34, 8, 32, _q8_0),
    12: ElementType("Q4_K", 256, 144, 4, 32, _q4_k),
    13: ElementType("Q5_K", 256, 176, 5, 32, _q5_k),
    14: ElementType("Q6_K", 256, 210, 6, 16, _q6_k),
    30: ElementType("BF16", 1, 2),
}
"""Number in the file -> type (``enum ggml_type`` in ``ggml.h``)."""

OTHER_TYPES: Mapping[int, str] = {
    10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Types that are known and not read."""

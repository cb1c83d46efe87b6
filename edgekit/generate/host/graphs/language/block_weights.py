"""Weights as integers in blocks: a scale, and a zero point or minimum, for so many inputs of an output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.system.scratch_file import ScratchFile
from edgekit.tensor_spec import Array


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """Matrix [outputs, inputs] as ``scale * (stored - zero) + minimum``, block by block along the inputs.

    Attributes:
        stored: uint8 [outputs, inputs], 0 to 2**bits - 1.
        scales: float32 [outputs, blocks].
        zeros: uint8 [outputs, blocks]: integer zero points; None: 2**(bits - 1) everywhere.
        minima: float32 [outputs, blocks]: offset of each weight of a block; None: no offset. GGUF's Q4_1
            has scale * stored + minimum: ``zeros`` of 0, and minima.
        bits: 4 or 8.
    """

    stored: Array
    scales: Array
    zeros: Array | None = None
    minima: Array | None = None
    bits: int = 8

    @property
    def block(self) -> int:
        """Return the number of inputs in a block."""
        return int(self.stored.shape[1] // self.scales.shape[1])

    @property
    def outputs(self) -> int:
        return int(self.stored.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.stored.shape[1])

    def floats(self) -> Array:
        """Dequantize the matrix to float32 [outputs, inputs]."""
        blocks = self.stored.reshape(*self.scales.shape, self.block).astype(np.float32)
        middle = 1 << (self.bits - 1)
        zeros = middle if self.zeros is None else self.zeros[..., None].astype(np.float32)
        floats = (blocks - zeros) * self.scales[..., None]
        if self.minima is not None:
            floats += self.minima[..., None]
        matrix: Array = floats.reshape(self.stored.shape)
        return matrix

    def packed(self) -> Array:
        """Pack ``stored`` as uint8 [outputs, blocks, block * bits / 8]; even inputs in the low halves."""
        blocks = self.stored.reshape(*self.scales.shape, self.block)
        return blocks if self.bits == 8 else blocks[..., 0::2] | (blocks[..., 1::2] << 4)

    def packed_zeros(self) -> Array | None:
        """Pack ``zeros`` as uint8 [outputs, ceil(blocks * bits / 8)], like ``stored``."""
        if self.zeros is None or self.bits == 8:
            return self.zeros
        even = np.pad(self.zeros, ((0, 0), (0, self.zeros.shape[1] % 2)))
        halves: Array = even[:, 0::2] | (even[:, 1::2] << 4)
        return halves

    def rows(self, index: slice | Array) -> BlockWeights:
        """Select some of the outputs."""
        zeros = None if self.zeros is None else self.zeros[index]
        minima = None if self.minima is None else self.minima[index]
        return BlockWeights(self.stored[index], self.scales[index], zeros, minima, self.bits)

    def kept(self, scratch: ScratchFile) -> BlockWeights:
        """Return the same matrix on pages of a file.

        Raises:
            OSError: the temporary folder has no room.
        """
        zeros, minima = (
            None if array is None else scratch.keep(array) for array in (self.zeros, self.minima)
        )
        return BlockWeights(scratch.keep(self.stored), scratch.keep(self.scales), zeros, minima, self.bits)


def stacked(parts: list[BlockWeights]) -> BlockWeights | None:
    """Stack matrices along the outputs, for one product. Return None if their formats differ."""
    first = parts[0]
    kinds = {(p.bits, p.block, p.inputs, p.zeros is None, p.minima is None) for p in parts}
    if len(kinds) > 1:
        return None
    join = np.concatenate
    return BlockWeights(
        join([p.stored for p in parts]),
        join([p.scales for p in parts]),
        None if first.zeros is None else join([p.zeros for p in parts if p.zeros is not None]),
        None if first.minima is None else join([p.minima for p in parts if p.minima is not None]),
        first.bits,
    )

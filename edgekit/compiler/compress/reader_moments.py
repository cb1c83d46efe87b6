"""Second moments of the inputs of removable channels' readers, for least-squares reconstruction.

Only sums are kept, [columns, columns] for each reader, so memory does not grow with the number of samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_labels import Use
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import ints_of
from edgekit.compiler.quantize.weights.weight_matrix import WeightMatrix, product_of
from edgekit.target.quant_rules import OpRule
from edgekit.tensor_spec import Array

COLUMNS_LIMIT = 4608
"""Most columns of a reader: 512 channels of a 3 x 3 kernel, whose moments have 170 MB. Channels that a larger
one reads stay."""
ROWS = 8192
"""Positions that a reader's moments are taken from, over all samples, or ROWS_PER_COLUMN for each column. At
7,000 EfficientNet-Lite0 kept .840 of top-1 .876 with a fifth of its multiplications removed."""
ROWS_PER_COLUMN = 4
PASS_BYTES = 512 * 2**20
"""Bytes of moments that are summed in one pass over the samples."""

_RULES = {
    "Conv": OpRule("Conv", "own", "any Conv with constant weights", weight=1, bias=2),
    "Gemm": OpRule("Gemm", "own", "any Gemm with constant weights", weight=1, bias=2),
    "MatMul": OpRule("MatMul", "own", "any MatMul with constant weights", weight=1),
}


@dataclass(frozen=True, eq=False)
class ReaderMoments:
    """Moments of the columns x of a reader's input.

    Attributes:
        mean: float64 [columns].
        covariance: float64 [columns, columns], about the mean.
        rows: Number of positions.
    """

    mean: Array
    covariance: Array
    rows: int

    def about_zero(self) -> ReaderMoments:
        """Return the moments about zero, for a reader without a bias, which cannot absorb a mean."""
        second = self.covariance + np.outer(self.mean, self.mean)
        return ReaderMoments(np.zeros_like(self.mean), second, self.rows)


@dataclass(frozen=True, eq=False)
class ProductReader:
    """Node that multiplies removable channels by constant weights."""

    use: Use
    product: WeightMatrix

    @property
    def name(self) -> str:
        """Return the name of the first output: nodes of one source node share a node name."""
        return str(self.product.node.outputs[0].name)

    def moments(self, readers: Mapping[str, ReaderMoments]) -> ReaderMoments:
        """Return the moments of its input that its fit needs."""
        input_moments = readers[self.input_key]
        return input_moments if self.product.bias is not None else input_moments.about_zero()

    @cached_property
    def matrix(self) -> Array:
        """Return the weights, float64 [columns, outputs]."""
        weights: Array = self.product.matrix()[0].T * self.product.alpha
        return weights

    @cached_property
    def channels(self) -> Array:
        """Return the label of each column, int64 [columns]."""
        return np.repeat(self.use.ids, self.product.kernel_size)

    @property
    def input_key(self) -> str:
        """Return a key that is equal for readers of the same columns of the same value."""
        node = self.product.node
        shape = [ints_of(node, name) for name in ("kernel_shape", "strides", "pads", "dilations")]
        kernel = self.product.weights.shape[2:] if node.op_type == "Conv" else ()
        return f"{self.product.input.name} {node.op_type} {kernel} {shape}"


def reader_of(use: Use) -> ProductReader | None:
    """Return the reader of a use, or None if its weights cannot be fitted by least squares."""
    rule = _RULES.get(use.node.op_type)
    product = product_of(use.node, rule) if rule is not None and use.index == 1 else None
    if product is None or not product.has_columns or product.groups != 1:
        return None
    if product.matrix().shape[2] > COLUMNS_LIMIT or static_dims(product.input) is None:
        return None
    return ProductReader(use, product)


def moments_of(
    model: ir.Model,
    readers: Sequence[ProductReader],
    samples: Sequence[Sample],
    report: Callable[[int, int], None] | None = None,
) -> dict[str, ReaderMoments]:
    """Compute the moments of each reader's input on samples, by ``input_key``.

    Args:
        model: The float model that the readers are nodes of.
        readers: The readers; only the first of those with the same ``input_key`` is used.
        report: Called with (done, total) after each run.
    """
    distinct = {reader.input_key: reader for reader in reversed(readers)}
    passes = _passes(list(distinct.values()))
    moments: dict[str, ReaderMoments] = {}
    for number, group in enumerate(passes):
        sums = [_Sums(reader, len(samples)) for reader in group]
        reference = Reference(model, intermediate=_intermediate(model, group), optimize=True)
        for index, sample in enumerate(samples):
            values = {**sample, **reference.run(sample)}
            for accumulator in sums:
                accumulator.add(values[str(accumulator.reader.product.input.name)], index)
            if report:
                report(number * len(samples) + index + 1, len(passes) * len(samples))
        moments.update({accumulator.reader.input_key: accumulator.moments() for accumulator in sums})
    return moments


def _intermediate(model: ir.Model, readers: Sequence[ProductReader]) -> list[str]:
    endpoints = {str(value.name) for value in [*model.graph.inputs, *model.graph.outputs]}
    names = dict.fromkeys(str(reader.product.input.name) for reader in readers)
    return [name for name in names if name not in endpoints]


def _passes(readers: Sequence[ProductReader]) -> list[list[ProductReader]]:
    passes: list[list[ProductReader]] = [[]]
    size = 0
    for reader in readers:
        needed_bytes = 8 * len(reader.channels) ** 2
        if passes[-1] and size + needed_bytes > PASS_BYTES:
            passes.append([])
            size = 0
        passes[-1].append(reader)
        size += needed_bytes
    return passes


class _Sums:
    def __init__(self, reader: ProductReader, samples: int) -> None:
        columns = len(reader.channels)
        self.reader = reader
        self._rows_per_sample = -(-max(ROWS, ROWS_PER_COLUMN * columns) // max(samples, 1))
        self._first = np.zeros(columns)
        self._second = np.zeros((columns, columns))
        self._shift: Array | None = None
        self._rows = 0

    def add(self, x: Array, sample: int) -> None:
        product = self.reader.product
        dims = static_dims(product.node.outputs[0])
        assert dims is not None
        axis = 1 if product.node.op_type == "Conv" else len(dims) - 1
        total = int(np.prod(dims)) // dims[axis]
        positions = np.arange(total)
        if self._rows_per_sample < total:
            seed = hashlib.sha256(f"{self.reader.input_key} {sample}".encode()).digest()[:8]
            draw = np.random.default_rng(int.from_bytes(seed, "little"))
            positions = np.sort(draw.permutation(total)[: self._rows_per_sample])
        rows = product.rows(product.by_channel(x), np.zeros((), np.float32), positions)[0]
        if self._shift is None:  # sums about a number near the mean keep their digits in float32 products
            self._shift = rows.mean(axis=1, keepdims=True)
        rows = rows - self._shift
        self._first += rows.sum(axis=1, dtype=np.float64)
        self._second += rows @ rows.T
        self._rows += rows.shape[1]

    def moments(self) -> ReaderMoments:
        assert self._shift is not None
        mean = self._first / self._rows
        covariance = self._second / self._rows - np.outer(mean, mean)
        return ReaderMoments(mean + self._shift[:, 0].astype(np.float64), covariance, self._rows)

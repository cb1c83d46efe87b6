"""Sparse constants, made by an encoder that follows the schema's description, are read back dense."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_tflite.importer.convert import convert
from edgekit_tflite.importer.file import read_file
from edgekit_tflite.records import Record
from edgekit_tflite.schema import NUMBERS
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.importers.contract import ImportOptions
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array
from tests.fixtures.tflite_files import TfliteFile, edited, on_litert

VECTORS: dict[Any, int] = {np.int32: 1, np.uint16: 2, np.uint8: 3}


def encoded(
    dense: Array, order: Sequence[int], compressed: Sequence[bool], blocks: dict[int, int], index: type
) -> tuple[Array, Any]:
    """The stored values and the SparsityParameters of an array.

    Args:
        dense: The array.
        order: Axes in the order of the traversal; len(shape) + n is the n-th block's.
        compressed: Whether each level of the traversal lists its indices.
        blocks: Axis -> size of its blocks.
        index: Type of the listed numbers.
    """
    rank, axes = dense.ndim, []
    shape: list[int] = []
    for axis, size in enumerate(dense.shape):
        shape += [size // blocks[axis], blocks[axis]] if axis in blocks else [size]
    cut = dense.reshape(shape)
    at, inner = 0, []
    for axis in range(rank):
        axes.append(at)
        if axis in blocks:
            inner.append((list(blocks).index(axis), at + 1))
        at += 2 if axis in blocks else 1
    cut = cut.transpose([*axes, *(a for _, a in sorted(inner))]).transpose(list(order))
    levels: list[Any] = []
    positions: list[tuple[int, ...]] = [()]
    for depth, is_listed in enumerate(compressed):
        level: Any = Record("DimensionMetadata")
        if is_listed:
            segments, indices, after = [0], [], list[tuple[int, ...]]()
            for prefix in positions:
                some = [i for i in range(cut.shape[depth]) if np.any(cut[(*prefix, i)])]
                indices += some
                segments.append(len(indices))
                after += [(*prefix, i) for i in some]
            level.format = NUMBERS["DimensionType"]["SPARSE_CSR"]
            for name, numbers in (("Segments", segments), ("Indices", indices)):
                table = Record(f"{index.__name__.capitalize()}Vector", values=numbers)
                setattr(level, f"array{name}Type", VECTORS[index])
                setattr(level, f"array{name}", table)
            positions = after
        else:
            level.denseSize = cut.shape[depth]
            positions = [(*prefix, i) for prefix in positions for i in range(cut.shape[depth])]
        levels.append(level)
    sparsity = Record(
        "SparsityParameters", traversalOrder=order, blockMap=list(blocks) or None, dimMetadata=levels
    )
    return np.array([cut[p] for p in positions], dense.dtype), sparsity


def file_of(dense: Array, stored: Array, sparsity: Any, edit: Callable[[Any], None] | None = None) -> bytes:
    """A file that adds a sparse constant, after DENSIFY, to its input."""
    file = TfliteFile()
    x = file.input(dense.shape)
    constant = file.constant(dense)
    made = file.op("DENSIFY", [constant], (dense.shape, dense.dtype.name))
    if dense.dtype == np.float16:
        made = file.op("DEQUANTIZE", made, (dense.shape, "float32"))
    outputs = file.op("ADD", [x, *made], (dense.shape, "float32"), fused_activation_function="NONE")

    def make_sparse(model: Any) -> None:
        tensor = next(t for t in model.subgraphs[0].tensors if t.buffer and t.name == b"constant_1")
        tensor.sparsity = sparsity
        model.buffers[tensor.buffer].data = np.frombuffer(stored.tobytes(), np.uint8)
        if edit is not None:
            edit(tensor)

    return edited(file.content(*outputs), make_sparse)


def read(data: bytes) -> Array:
    (found,) = [t.data for t in read_file(data).graph.tensors if t.data is not None]
    return found


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.lists(st.sampled_from([1, 2, 4, 6]), min_size=1, max_size=3),
    share=st.floats(0, 1),
    half=st.booleans(),
    index=st.sampled_from([np.int32, np.uint16, np.uint8]),
)
def test_any_traversal(seed: int, shape: list[int], share: float, half: bool, index: type) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=shape).astype(np.float16 if half else np.float32)
    dense[rng.random(shape) < share] = 0
    blocks = {axis: 2 for axis, size in enumerate(shape) if size % 2 == 0 and rng.random() < 0.5}
    # Blocks come last, and are dense, as in the schema's description.
    order = [*rng.permutation(len(shape)).tolist(), *range(len(shape), len(shape) + len(blocks))]
    compressed = [bool(rng.random() < 0.6) for _ in shape] + [False] * len(blocks)
    stored, sparsity = encoded(dense, order, compressed, blocks, index)
    if not stored.size:  # an empty buffer is none
        return
    found = read(file_of(dense, stored, sparsity))
    assert found.dtype == dense.dtype
    np.testing.assert_array_equal(found, dense)


def matrix() -> Array:
    dense = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    dense[:, ::3] = 0
    dense[2] = 0
    return dense


@pytest.mark.needs_tflite
@pytest.mark.needs_ort
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_litert_reads_it_alike(dtype: type, tmp_path: Path) -> None:
    dense: Array = matrix().astype(dtype)
    stored, sparsity = encoded(dense, [0, 1], [False, True], {}, np.uint8)
    assert stored.size < dense.size
    data = file_of(dense, stored, sparsity)
    x = np.zeros(dense.shape, np.float32)
    np.testing.assert_array_equal(on_litert(data, [x], tmp_path)[0], dense.astype(np.float32))
    assert read(data).tobytes() == dense.tobytes()
    convert(data, ImportOptions())


def test_a_blocked_matrix_of_the_schema() -> None:
    """The example in the schema: 4 x 4 in blocks of 2 x 2, of which two are there."""
    dense = np.zeros((4, 4), np.float32)
    dense[:2, :2], dense[2:, 2:] = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
    stored, sparsity = encoded(dense, [0, 1, 2, 3], [False, True, False, False], {0: 2, 1: 2}, np.uint8)
    np.testing.assert_array_equal(stored, np.arange(1, 9))
    np.testing.assert_array_equal(read(file_of(dense, stored, sparsity)), dense)


def change(**fields: Any) -> Callable[[Any], None]:
    def edit(tensor: Any) -> None:
        for name, value in fields.items():
            owner = tensor.sparsity.dimMetadata[1] if name.startswith("array") else tensor.sparsity
            if name.startswith("array"):
                getattr(owner, name).values = np.array(value, np.uint8)
            else:
                setattr(owner, name, value)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        change(traversalOrder=np.array([0, 0], np.int32)),
        change(traversalOrder=np.array([0], np.int32)),
        change(blockMap=np.array([7], np.int32)),
        change(arraySegments=[0, 5, 10, 10]),
        change(arraySegments=[0, 10, 5, 10, 15]),
        change(arrayIndices=[200] * 15),
        change(arrayIndices=[1] * 14),
        change(arrayIndices=[1] * 200),
    ],
)
def test_levels_that_do_not_fit(edit: Callable[[Any], None]) -> None:
    dense = matrix()
    stored, sparsity = encoded(dense, [0, 1], [False, True], {}, np.uint8)
    assert math.prod(stored.shape) == 15
    with pytest.raises(ModelError) as error:
        read_file(file_of(dense, stored, sparsity, edit))
    assert str(error.value) == (
        "tensor 1 (constant_1) is sparse, and its levels don't fit its shape or its values"
    )

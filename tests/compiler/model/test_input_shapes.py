"""Shapes of inputs: one, or several sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from edgekit.compiler.model.input_shapes import recorded_picture_size
from edgekit.compiler.model.onnx_file import assumed_shapes, open_model, signature
from edgekit.compiler.model.shape_sets import compiled_sizes, further_shapes, largest_shapes, range_of
from edgekit.errors import ModelError, UsageError

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def model(folder: Path, inputs: str, nodes: str, outputs: str = "y", **metadata: str) -> Path:
    proto = parser.parse_model(f"{HEAD}({inputs}) => ({outputs}) {{ {nodes} }}")
    onnx.helper.set_model_props(proto, metadata)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def shapes_of(path: Path, **shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [spec.shape for spec in signature(open_model(path, shapes))[0]]


@pytest.mark.parametrize("batch", ["N", "batch_size", "unk__574", "?", "0", "s0"])
def test_an_open_batch_is_1_and_the_model_says_so(tmp_path: Path, batch: str) -> None:
    path = model(tmp_path, f"float[{batch},3,8,8] images", "y = Relu(images)")
    opened = open_model(path)
    assert [spec.shape for spec in signature(opened)[1]] == [(1, 3, 8, 8)]
    assert assumed_shapes(opened) == (
        "not fixed in the model, so these were assumed: batch 1 of images; to choose them: --shape "
        "images=1x3x8x8"
    )


def test_nothing_is_assumed_of_a_static_model_or_a_given_shape(tmp_path: Path) -> None:
    path = model(tmp_path, "float[N,3,8,8] x", "y = Relu(x)")
    assert assumed_shapes(open_model(path, {"x": (4, 3, 8, 8)})) == ""
    assert assumed_shapes(open_model(model(tmp_path, "float[2,3] x", "y = Relu(x)"))) == ""


def test_every_input_of_the_same_batch_is_set(tmp_path: Path) -> None:
    inputs = "float[batch,4] x, float[2,batch,4] state, int64[batch] lengths"
    path = model(tmp_path, inputs, "a = Add(x, state)  b = Cast<to=1>(lengths)  y = Add(a, b)")
    opened = open_model(path)
    assert [spec.shape for spec in signature(opened)[0]] == [(1, 4), (2, 1, 4), (1,)]
    assert "batch 1 of x, state, lengths;" in assumed_shapes(opened)


@pytest.mark.parametrize(
    "inputs",
    [
        "float[sequence,4] x",  # named, and no batch
        "float[num_boxes,4] x",
        "float[T,4] x",
        "float[N,N] x",  # an adjacency matrix
        "float[?] x",  # a series
        "float[N,3,H,8] x",  # more is open than the batch
        "float x",
    ],
)
def test_what_may_be_no_batch_is_asked_for(tmp_path: Path, inputs: str) -> None:
    proto = parser.parse_model(f"{HEAD}(float[2,3] x) => (y) {{ y = Relu(x) }}")
    if inputs == "float x":
        proto.graph.input[0].type.tensor_type.ClearField("shape")
        (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    else:
        model(tmp_path, inputs, "y = Relu(x)")
    with pytest.raises(ModelError, match=r"^model.onnx: has dimensions that are not fixed; add a shape"):
        open_model(tmp_path / "model.onnx")


def test_a_graph_that_needs_another_batch_says_what_was_set(tmp_path: Path) -> None:
    nodes = "shape = Constant<value = int64[2] {4, 6}>()  [re] y = Reshape(x, shape)"
    with pytest.raises(ModelError) as caught:
        open_model(model(tmp_path, "float[N,6] x", nodes))
    assert str(caught.value) == (
        "model.onnx: node re (Reshape, opset 17): reshapes 1x6 (6 elements) to 4x6 (24 elements)\n"
        "  not fixed in the model, so these were assumed: batch 1 of x; to choose them: --shape x=1x6"
    )


def test_a_given_shape_holds_for_dimensions_of_the_same_name(tmp_path: Path) -> None:
    inputs = "int64[batch,sequence] ids, int64[batch,sequence] mask, float[batch,1] weight"
    path = model(tmp_path, inputs, "a = Add(ids, mask)  b = Cast<to=1>(a)  y = Mul(b, weight)")
    assert shapes_of(path, ids=(2, 16)) == [(2, 16), (2, 16), (2, 1)]


def test_a_name_with_two_sizes_is_no_name(tmp_path: Path) -> None:
    path = model(
        tmp_path, "float[1,D] a, float[1,D] b, float[1,D] c", "s = Concat<axis=1>(a, b)  y = Add(s, c)"
    )
    with pytest.raises(ModelError, match="--shape c=1x"):
        open_model(path, {"a": (1, 3), "b": (1, 4)})


def test_a_given_batch_is_not_mixed_with_one_that_was_assumed(tmp_path: Path) -> None:
    path = model(tmp_path, "float[?,4] a, float[?,4] b", "y = Mul(a, b)")
    with pytest.raises(ModelError, match="--shape b=1x4"):
        open_model(path, {"a": (8, 4)})


@pytest.mark.parametrize(
    "inputs", ["float[N,3,H,W] image, float[1,2] scale", "float[2,2] scale, float[N,3,8,8] image"]
)
def test_a_shape_without_a_name_is_the_image(tmp_path: Path, inputs: str) -> None:
    path = model(tmp_path, inputs, "y = Relu(image)  z = Relu(scale)", "y, z")
    assert (2, 3, 16, 24) in shapes_of(path, **{"": (2, 3, 16, 24)})


def test_a_shape_without_a_name_is_the_only_input(tmp_path: Path) -> None:
    path = model(tmp_path, "float[T,F] x", "y = Relu(x)")
    assert shapes_of(path, **{"": (49, 10)}) == [(49, 10)]


def test_a_shape_without_a_name_is_refused_where_it_could_be_of_several(tmp_path: Path) -> None:
    path = model(tmp_path, "float[N,4] a, float[N,4] b", "y = Add(a, b)")
    with pytest.raises(UsageError) as caught:
        open_model(path, {"": (1, 4)})
    assert str(caught.value) == (
        "--shape 1x4: which input is it for? Write --shape NAME=1x4; the model's inputs are a Nx4; b Nx4"
    )


def test_the_size_that_the_exporter_recorded_is_used(tmp_path: Path) -> None:
    path = model(
        tmp_path, "float[batch,3,height,width] images", "y = Relu(images)", imgsz="[320, 256]", task="detect"
    )
    opened = open_model(path)
    assert signature(opened)[0][0].shape == (1, 3, 320, 256)
    assert assumed_shapes(opened) == (
        "not fixed in the model, so these were assumed: batch 1 of images, size 320x256 of images (imgsz "
        "in its metadata); to choose them: --shape images=1x3x320x256"
    )


@pytest.mark.parametrize(
    "text", ["", "320", "[320]", "[0, 320]", "[320, 320, 3]", "[999999, 1]", "[-1, 4]", "x" * 10**6]
)
def test_other_recorded_sizes_are_ignored(text: str) -> None:
    assert recorded_picture_size({"imgsz": text}) is None


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ('y = Resize <mode = "cubic"> (x, , v)', "scales"),
        ("y = Reshape (x, s)", "shape"),
        ("y = Expand (x, s)", "shape"),
    ],
)
def test_a_shape_that_an_input_gives_is_named(tmp_path: Path, node: str, name: str) -> None:
    inputs = "float[1,1,6,6] x, float[4] v, int64[4] s"
    value = "v" if name == "scales" else "s"
    op = node.split()[2]
    path = model(tmp_path, inputs, node, "float[?,?,?,?] y")
    with pytest.raises(ModelError) as refused:
        open_model(path)
    assert str(refused.value).endswith(
        f"output y has no fixed shape: the shape of node {op}_0 ({op}) depends on the values of its {name}, "
        f"which is the input {value} of the model; make it a constant of the model"
    )


def test_shapes_are_ordered_by_their_elements() -> None:
    shapes = {"image": [(1, 3, 64, 64), (1, 3, 96, 96), (1, 3, 32, 32)], "scale": (1,)}
    assert largest_shapes(shapes) == {"image": (1, 3, 96, 96), "scale": (1,)}
    assert further_shapes(shapes) == [{"image": (1, 3, 32, 32)}, {"image": (1, 3, 64, 64)}]


def test_the_kth_shapes_belong_together() -> None:
    shapes = {"a": [(4,), (2,)], "b": [[1, 4], [1, 2]]}
    assert largest_shapes(shapes) == {"a": (4,), "b": (1, 4)}
    assert further_shapes(shapes) == [{"a": (2,), "b": (1, 2)}]


@pytest.mark.parametrize("shapes", [{}, {"x": (1, 3)}, {"x": ()}, {"": [(1, 3)]}])
def test_one_shape_has_no_further_ones(shapes: Any) -> None:
    assert further_shapes(shapes) == []
    assert set(largest_shapes(shapes)) == set(shapes)


def test_a_range_is_compiled_at_some_sizes() -> None:
    shapes = {"ids": (1, "1..512"), "mask": [1, "1..512"], "image": (1, 3, 8, 8)}
    assert range_of(shapes) == range(1, 513)
    assert largest_shapes(shapes) == {"ids": (1, 512), "mask": (1, 512), "image": (1, 3, 8, 8)}
    assert [each["ids"] for each in further_shapes(shapes)] == [(1, 2), (1, 131), (1, 257)]
    assert [set(each) for each in further_shapes(shapes)] == [{"ids", "mask"}] * 3


@pytest.mark.parametrize(("low", "high"), [(1, 3), (1, 5), (2, 6), (7, 9), (1, 128), (64, 640), (1, 8192)])
def test_a_range_is_compiled_at_its_end_and_at_a_prime(low: int, high: int) -> None:
    sizes = compiled_sizes(range(low, high + 1))
    assert len(sizes) >= 3
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == high
    assert sizes[0] in (low, 2)
    assert high < 5 or any(all(size % each for each in range(2, size)) for size in sizes[:-1] if size > 1)


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (
            {"a": [(1,), (2,)], "": [(1,), (2,), (3,)]},
            "--shape: inputs have different numbers of shapes (a 2, the image 3); give each as many, or one",
        ),
        ({"a": [(1,), 2]}, "shape 2 of a is 2; it must be whole numbers"),
        ({"a": [(1,), ("x",)]}, "shape 2 of a is ('x',); it must be whole numbers"),
        ({"a": (1, 2.5)}, "shape 1 of a is (1, 2.5); it must be whole numbers"),
    ],
)
def test_malformed_shapes(shapes: Any, told: str) -> None:
    with pytest.raises(UsageError) as error:
        further_shapes(shapes)
    assert str(error.value) == told

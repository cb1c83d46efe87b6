"""A student's channels are found among its teacher's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.compress.channel_groups import find_channels
from edgekit.compiler.compress.remove_channels import remove_channels
from edgekit.compiler.compress.student_training import matched_channels
from edgekit.compiler.model.rewriting import array_of
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import Graph

pytestmark = pytest.mark.needs_ort


def network(folder: Path, wide: int, seed: int) -> tuple[ir.Model, str]:
    """A model and the name of its hidden value, ``[1, wide, 8, 8]``."""
    graph = Graph({"x": [1, 3, 8, 8]}, seed=seed)
    hidden = graph("Relu", graph.conv("x", wide, 3, 3))
    model = graph.model(folder, graph.conv(hidden, 2, wide))
    (value,) = (node.outputs[0] for node in model.graph if node.op_type == "Relu")
    return model, str(value.name)


def samples(count: int = 4) -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def test_what_pruning_left_is_found(tmp_path: Path) -> None:
    teacher, hidden = network(tmp_path, 16, 0)
    (group,) = find_channels(teacher).groups
    student = remove_channels(teacher, group.units[[0, 3, 4, 11]].tolist())
    found = matched_channels(teacher, student, [hidden], samples(), {"x": "x"})
    assert found == {hidden: (1, 2, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15)}


def test_another_value_of_the_same_name_is_not_compared(tmp_path: Path) -> None:
    teacher, hidden = network(tmp_path, 16, 0)
    student, same = network(tmp_path, 12, 5)
    assert same == hidden
    assert matched_channels(teacher, student, [hidden], samples(), {"x": "x"}) == {}
    assert matched_channels(teacher, student, [], samples(), {"x": "x"}) == {}


def test_a_channel_that_no_other_is_like_is_not_compared(tmp_path: Path) -> None:
    teacher, hidden = network(tmp_path, 16, 0)
    student, _ = network(tmp_path, 1, 5)
    assert matched_channels(teacher, student, [hidden], samples(), {"x": "x"}) == {}


def test_two_channels_that_are_alike_are_not_compared(tmp_path: Path) -> None:
    teacher, hidden = network(tmp_path, 16, 0)
    (group,) = find_channels(teacher).groups
    student = remove_channels(teacher, group.units[:14].tolist())
    assert matched_channels(teacher, student, [hidden], samples(), {"x": "x"}) == {hidden: (14, 15)}
    conv = next(node for node in student.graph if node.op_type == "Conv")
    for value in conv.inputs[1:]:
        array = array_of(value)
        assert value is not None
        assert array is not None
        value.const_value = ir.tensor(array[[0, 0]], name=value.name)
    assert matched_channels(teacher, student, [hidden], samples(), {"x": "x"}) == {}

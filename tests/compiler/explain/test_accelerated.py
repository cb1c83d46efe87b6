"""Wrong nodes of an accelerated copy; tests/vulkan/test_gpu.py explains a real one."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from edgekit.cli import main
from edgekit.compiler.explain.accelerated import explain_accelerated, render_accelerated, wrong_values
from edgekit.compiler.explain.explain import compared
from edgekit.errors import UsageError
from edgekit.target.node_reports import NodeValue
from tests.fixtures.bundles import small_bundle, variant

EXACT = np.linspace(1, 2, 100, dtype=np.float32)


def value(name: str, *inputs: str, error: float = 0.0) -> NodeValue:
    return NodeValue(f"{name} node", "Conv", name, inputs, EXACT * np.float32(1 + error))


def test_the_wrong_node_is_named_and_those_that_read_its_value_are_not() -> None:
    graph = [value("a", "x"), value("b", "a"), value("c", "b"), value("d", "a"), value("e", "c", "d")]
    made = [
        value("a", "x", error=1e-6),
        value("b", "a", error=0.1),
        value("c", "b", error=0.9),  # louder, but it reads b
        value("d", "a", error=1e-6),
        value("e", "c", "d", error=0.5),
    ]
    wrong = wrong_values(compared(made, graph), graph, 100.0)
    assert [each["node"] for each in wrong] == ["b node"]
    assert wrong_values(compared(made, graph), graph, 0.0) == []


def test_two_independent_wrong_nodes_are_in_the_order_of_the_graph() -> None:
    graph = [value("a", "x"), value("b", "x"), value("c", "a", "b")]
    made = [value("a", "x", error=0.01), value("b", "x", error=0.5), value("c", "a", "b", error=0.5)]
    assert [w["node"] for w in wrong_values(compared(made, graph), graph, 60.0)] == ["a node", "b node"]


@pytest.mark.needs_ort
def test_a_machine_without_one_says_so() -> None:
    bundle = small_bundle([variant("ort-fp32", "ort")])
    (found,) = explain_accelerated(bundle, "npu")
    assert found["variant"] == "ort-fp32@npu"
    assert found["refused"]
    assert "it does not run there" in render_accelerated([found])


@pytest.mark.needs_coreml
def test_an_engine_without_accelerators_is_refused() -> None:
    with pytest.raises(UsageError, match="coreml-fp32: this engine runs on the CPU only"):
        explain_accelerated(small_bundle([variant("coreml-fp32", "coreml")]), "gpu")


def test_it_does_not_combine(tmp_path: object) -> None:
    result = CliRunner().invoke(main, ["explain", "a.edgekit", "--accelerator", "gpu", "--against", "b"])
    assert result.exit_code == 2
    assert "--accelerator does not combine with --against" in result.output

"""Execution providers of ONNX Runtime: the rows, and placement by a profile. tests/vulkan runs a real one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_ort import accelerators
from edgekit_ort.device import placement, providers
from edgekit_ort.run import MODEL_FILE, engine_version, open_session

from edgekit.errors import EngineError
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.accelerators import PlacedNode, named
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.models import parse

pytestmark = pytest.mark.needs_ort

NETWORK = """
<ir_version: 10, opset_import: ["": 17]>
net (float[1,4] x) => (float[1,4] y) <float[4,4] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}> {
    a = MatMul(x, w)
    y = Erf(a)
}
"""
SPEC = [TensorSpec("x", "float32", (1, 4))], [TensorSpec("y", "float32", (1, 4))]


def network(folder: Path) -> Path:
    ir.save(parse(NETWORK), folder / MODEL_FILE)
    return folder / MODEL_FILE


@pytest.mark.parametrize("row", accelerators.INTERFACES, ids=lambda row: str(row.name))
def test_a_provider_that_is_not_here_is_refused(row: providers.Provider, tmp_path: Path) -> None:
    """The same code as for one that is here, up to its absence."""
    if accelerators.find_accelerator(row.name) is not None:
        pytest.skip("it is here")
    with pytest.raises(EngineError) as raised:
        accelerators.open_on(row.name, {MODEL_FILE: network(tmp_path)}, *SPEC, {}, 1)
    version = engine_version()
    assert str(raised.value) == f"{version} found no {row.name} on this machine"


@pytest.mark.parametrize("row", accelerators.INTERFACES, ids=lambda row: str(row.name))
def test_a_listed_provider_without_its_device_is_not_found(
    row: providers.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime lists CUDA's provider without a GPU, and runs everything on the CPU."""
    libraries = row.libraries.get(sys.platform, ())
    if not libraries or all(map(accelerators._loads, libraries)):
        pytest.skip("nothing of this system is missing for it")
    ort = onnxruntime("a test", "ort")
    monkeypatch.setattr(ort, "get_available_providers", lambda: [row.provider])
    assert accelerators.find_accelerator(row.name) is None


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_is_not_created_is_told_apart_from_one_without_kernels(tmp_path: Path) -> None:
    """ONNX Runtime logs why, and opens the session without it."""
    missing = next(
        row
        for row in accelerators.INTERFACES
        if not row.plugin and row.provider not in onnxruntime("a", "ort").get_available_providers()
    )
    device = accelerators._AvailableDevice(missing, (), "")
    with pytest.raises(EngineError, match=missing.label):
        accelerators._session(device, network(tmp_path), {}, 1)


def test_a_provider_that_takes_no_node_is_refused(tmp_path: Path) -> None:
    """Azure's provider is in every package of ONNX Runtime, and has no kernel."""
    row = replace(accelerators.INTERFACES[0], provider="AzureExecutionProvider", label="Azure")
    with pytest.raises(EngineError, match=r"^Azure runs none of the 2 nodes$") as error:
        accelerators._open(accelerators._AvailableDevice(row, (), ""), network(tmp_path), *SPEC, {}, 1)
    assert error.value.blame == "bundle"


def test_the_last_line_of_a_provider_s_error_is_its_reason() -> None:
    error = EngineError("at basic_backend.cc:136 ...\nFrontEnd API failed:\nAttention is not supported\n\n")
    assert accelerators._plain(error) == "Attention is not supported"


def test_a_kind_means_its_rows_and_a_name_means_one() -> None:
    assert [row.name for row in named(accelerators.INTERFACES, "npu")] == ["coreml-npu", "openvino-npu"]
    assert [row.name for row in named(accelerators.INTERFACES, "tensorrt")] == ["tensorrt"]
    assert named(accelerators.INTERFACES, "cpu") == []  # other kernels are never meant by a kind


def test_every_row_is_complete() -> None:
    rows = accelerators.INTERFACES
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.source.startswith("https://"), row
        assert row.precision, row
        assert row.install, row
        assert row.systems, row
        assert set(row.libraries) <= set(row.systems), row


class Part(NamedTuple):
    """A subgraph as ONNX Runtime assigned it."""

    ep_name: str
    nodes: list[Any]

    def get_nodes(self) -> list[Any]:
        return self.nodes


class Node(NamedTuple):
    name: str
    op_type: str


class Assigned(NamedTuple):
    """A session with a provider that compiles subgraphs: OpenVINO's is in another build of onnxruntime."""

    parts: list[Part]

    def get_provider_graph_assignment_info(self) -> list[Part]:
        return self.parts


def event(name: str, op: str, provider: str, *types: str) -> dict[str, Any]:
    args = {"op_name": op, "provider": provider, "input_type_shape": [{each: [1]} for each in types]}
    return {"cat": "Node", "name": f"{name}_kernel_time", "args": args}


def test_a_profile_s_kernels_are_the_nodes(tmp_path: Path) -> None:
    session = open_session(network(tmp_path), 1, profile_into=tmp_path / "profile")
    session.run(None, {"x": np.zeros((1, 4), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    nodes, copies = placement.placed_nodes(events, session, "CPUExecutionProvider", "the CPU")
    assert [(node.op, node.provider, node.reason) for node in nodes] == [
        ("MatMul", "CPUExecutionProvider", ""),
        ("Erf", "CPUExecutionProvider", ""),
    ]
    assert copies == 0
    nodes, _ = placement.placed_nodes(events, session, "DmlExecutionProvider", "DirectML")
    assert [node.reason for node in nodes] == [
        "DirectML does not take this MatMul; it gives no reason",
        "DirectML does not take this Erf; it gives no reason",
    ]


def test_nodes_inside_a_compiled_subgraph_count_and_copies_do_not() -> None:
    session = Assigned(
        [
            Part("X", [Node("a", "Conv"), Node("b", "Relu")]),
            Part("X", [Node("d", "Gemm")]),
            Part("CPUExecutionProvider", [Node("c", "TopK")]),
        ]
    )
    events = [
        event("copy", "MemcpyFromHost", "X"),
        event("one", "subgraph_1", "X"),
        event("c", "TopK", "CPUExecutionProvider"),
        event("two", "subgraph_2", "X"),
        {"cat": "Session", "name": "model_run"},
    ]
    nodes, copies = placement.placed_nodes(events, session, "X", "X")
    reason = "X does not take this TopK; it gives no reason"
    assert nodes == [
        PlacedNode("a", "Conv", "X"),
        PlacedNode("b", "Relu", "X"),
        PlacedNode("d", "Gemm", "X"),
        PlacedNode("c", "TopK", "CPUExecutionProvider", reason),
    ]
    assert copies == 1


@pytest.mark.parametrize(
    ("op", "types", "reason"),
    [
        ("TopK", ("float",), "GPU has no kernel for TopK"),
        ("Reshape", ("int8", "int64"), "GPU's Reshape does not take int8"),
        ("Reshape", ("double", "int8"), "GPU's Reshape does not take float64 or int8"),
        (
            "Reshape",
            ("float", "int64"),
            "GPU has a kernel for Reshape; ONNX Runtime placed the node on the CPU",
        ),
    ],
)
def test_the_reason_is_read_from_the_plug_in_s_kernels(op: str, types: tuple[str, ...], reason: str) -> None:
    facts = event("n", op, "CPUExecutionProvider", *types)["args"]
    assert placement._reason(op, facts, "GPU", {"Reshape": {"float", "int64"}}) == reason

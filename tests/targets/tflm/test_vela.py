"""What vela says of a file: estimates, told as such."""

from __future__ import annotations

import pytest
from edgekit_tflm import vela

from edgekit.errors import EngineError, MissingDependency
from edgekit.target.installed_profiles import find_profile
from tests.targets.tflm.networks import classifier, compiled, quantized


def test_a_microcontroller_alone_has_no_estimate() -> None:
    assert vela.estimate({"model.tflite": b""}, find_profile("tflm")) is None


@pytest.mark.needs_vela
@pytest.mark.parametrize("name", ["ethos-u55", "ethos-u65", "ethos-u85"])
def test_all_of_a_quantized_network_is_on_the_npu(name: str) -> None:
    found = vela.estimate(compiled(quantized(classifier())).files, find_profile(name))
    assert found is not None
    assert found.tool.startswith("ethos-u-vela ")
    assert found.configuration.startswith(f"{name}-")
    assert "system-config=" in found.configuration
    assert "memory-mode=" in found.configuration
    assert {node.device for node in found.nodes} == {"NPU"}
    assert not any(node.why for node in found.nodes)
    assert found.cycles is not None
    assert 0 < found.cycles < 1e6
    assert found.memory_bytes["ram"] > 16 * 16 * 3
    assert not found.notes


@pytest.mark.needs_vela
def test_what_stays_on_the_cpu_has_its_reason() -> None:
    """With the rows of ``tflite``, whose last nodes stay float."""
    found = vela.estimate(compiled(quantized(classifier(), "tflite")).files, find_profile("ethos-u55"))
    assert found is not None
    why = {node.op: node.why for node in found.nodes if node.device == "CPU"}
    assert "DataType Float32" in why["Softmax"]
    assert all(bool(node.why) == (node.device == "CPU") for node in found.nodes)
    left = sum(node.device == "CPU" for node in found.nodes)
    note = f"cycles and time are those of the NPU: {left} nodes on the CPU are not in them"
    assert found.notes == (note,)


@pytest.mark.needs_vela
def test_a_file_that_it_refuses() -> None:
    with pytest.raises(EngineError) as error:
        vela.estimate({"model.tflite": b"no model"}, find_profile("ethos-u55"))
    assert str(error.value).startswith("ethos-u-vela ")
    assert "rejects the file" in str(error.value)


def test_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency) as error:
        vela.estimate({"model.tflite": b""}, find_profile("ethos-u55"))
    assert str(error.value).startswith(
        "ethos-u-vela is not installed, and estimating for an Ethos-U needs it: "
    )

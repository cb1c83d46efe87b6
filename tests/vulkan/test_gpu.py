"""ONNX Runtime's WebGPU provider and LiteRT's GPU accelerator for real, on a GPU made of software."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgekit
from tests.conftest import SHARED
from tests.vulkan import lavapipe

pytestmark = [pytest.mark.needs_vulkan, pytest.mark.needs_shared, pytest.mark.slow]

RUN = """
import json, sys, time
from edgekit.runtime import Session
with Session(sys.argv[1], engine=sys.argv[2], device=sys.argv[3]) as session:
    feeds = {spec.name: spec.zeros() for spec in session.inputs}
    first = session.active.device
    states = None
    while states != session.preparing or "warming" in states.values():
        states = dict(session.preparing)
        session.run(feeds)
        time.sleep(0.05)
    print(json.dumps({
        "first": first, "variant": session.active.variant, "device": session.active.device,
        "reasons": [hop.reason for hop in session.fallbacks], "preparing": dict(session.preparing),
        "facts": session.runner.facts(),
    }))
"""


def built(tmp_path: Path, model: str, **options: Any) -> Path:
    bundle = edgekit.build(SHARED / "models" / model, targets=["ort", "tflite"], **options)
    bundle.save(tmp_path / "model.edgekit")
    return tmp_path / "model.edgekit"


def on_gpu(bundle: Path, engine: str, device: str = "gpu") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lavapipe.python(RUN, str(bundle), engine, device))
    return found


def test_both_engines_run_a_network_on_the_gpu(tmp_path: Path) -> None:
    bundle = built(tmp_path, "vww_96_float.onnx")
    ort = on_gpu(bundle, "ort")
    assert (ort["first"], ort["variant"], ort["device"]) == ("CPU", "ort-fp32@gpu", "GPU (WebGPU)")
    assert ort["reasons"] == []
    assert ort["facts"]["nodes_by_provider"].keys() == {"WebGpuExecutionProvider"}
    tflite = on_gpu(bundle, "tflite")
    assert (tflite["first"], tflite["variant"], tflite["device"]) == (
        "CPU",
        "tflite-fp32@gpu",
        "GPU (LiteRT)",
    )
    assert tflite["reasons"] == []


def test_the_faster_processor_answers(tmp_path: Path) -> None:
    """A GPU made of software is slower than the CPU that it computes on."""
    found = on_gpu(built(tmp_path, "vww_96_float.onnx"), "ort", "auto")
    assert (found["variant"], found["device"], found["reasons"]) == ("ort-fp32", "CPU", [])
    assert found["preparing"]["ort-fp32@gpu"].startswith("failed: slower here: ")
    assert found["preparing"]["ort-fp32@npu"] == f"failed: {ort_version()} found no NPU on this machine"


EXPLAIN = """
import json, sys
from edgekit.bundle import Bundle
from edgekit.compiler.explain.accelerated import explain_accelerated, render_accelerated
with Bundle.open(sys.argv[1]) as bundle:
    found = explain_accelerated(bundle, "gpu")
print(json.dumps({"copies": found, "text": render_accelerated(found)}))
"""


def test_a_gpu_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime's WebGPU provider computes a Conv of Silero VAD wrongly, without an error (1.32, plug-in
    0.4); LiteRT would have to split the graph. ``explain`` names the Conv."""
    bundle = built(tmp_path, "silero_vad_16k_sequence.onnx", shapes={"input": [4, 576]})
    ort = on_gpu(bundle, "ort")
    assert (ort["variant"], ort["device"]) == ("ort-fp32", "CPU")
    (reason,) = ort["reasons"]
    assert reason.startswith("output ")
    assert reason.endswith(" dB; the limit is 100.0 dB")
    tflite = on_gpu(bundle, "tflite")
    assert (tflite["variant"], tflite["device"]) == ("tflite-fp32", "CPU")
    (reason,) = tflite["reasons"]
    assert reason.endswith("did not load model.tflite on a GPU: the GPU can't run every operator of it")
    explained = json.loads(lavapipe.python(EXPLAIN, str(bundle)))
    on_ort, on_tflite = explained["copies"]
    assert [(wrong["source"], wrong["op"]) for wrong in on_ort["wrong"]] == [("/encoder.0/Conv", "Conv")]
    assert on_ort["nodes"].keys() == {"WebGpuExecutionProvider"}
    assert "  wrong     /encoder.0/Conv (Conv): " in explained["text"]
    assert on_tflite["no_values"] == "it does not run there"


def test_what_a_gpu_leaves_to_the_cpu_is_told_and_strict_refuses_it(tmp_path: Path) -> None:
    """WebGPU has no kernels for int8 with pairs of QuantizeLinear and DequantizeLinear in one Conv."""
    bundle = built(tmp_path, "vww_96_int8.onnx")
    ort = on_gpu(bundle, "ort")
    on_cpu = ort["facts"]["nodes_by_provider"]["CPUExecutionProvider"]
    total = sum(ort["facts"]["nodes_by_provider"].values())
    assert ort["device"] == f"GPU (WebGPU, {on_cpu} of {total} nodes on the CPU)"
    assert ort["facts"]["copies_between_processors"] > 0
    (copy, _) = json.loads(lavapipe.python(EXPLAIN, str(bundle)))["copies"]
    assert copy["fallback_reasons"]["WebGPU has no kernel for QuantizeLinear"] > 0
    assert "WebGPU's Reshape does not take int8" in copy["fallback_reasons"]
    assert sum(copy["fallback_reasons"].values()) == on_cpu
    assert len(copy["placement"]) == total
    refused = lavapipe.python(STRICT, str(bundle))
    assert "strict allows no node on the CPU, which would run " in refused


STRICT = """
import sys
from edgekit.errors import EngineError
from edgekit.runtime import Session
try:
    Session(sys.argv[1], engine="ort", device="gpu", strict=True)
except EngineError as refused:
    print(refused)
"""


def ort_version() -> str:
    import onnxruntime

    return f"ONNX Runtime {onnxruntime.__version__}"

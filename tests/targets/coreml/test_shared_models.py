"""Real networks: compiled, run by the reference executor, compared with the source model on the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from edgekit_coreml.compile import compile_model, refined_model
from edgekit_coreml.run import open_runner

from edgekit.model_file import open_model, signature
from edgekit.passes import run_passes
from edgekit.profile import find_profile
from edgekit.reference import Reference
from edgekit.target import Array
from edgekit.verify import write_files
from tests.passes.meaning import snr_db
from tests.test_shared_models import Case, feeds

pytestmark = [pytest.mark.needs_shared, pytest.mark.needs_coreml, pytest.mark.needs_ort]


@dataclass(frozen=True)
class Network:
    """One shared model.

    Attributes:
        shapes: What freezes it; small, as the executor is no engine.
        fp32_db: Least SNR of each output in float32; lower where it is a sigmoid that saturates.
        fp16_db: The same with every value rounded to float16.
        picture: The test picture's 0 to 255 are divided by this; 0: normal noise.
    """

    name: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fp32_db: float = 100.0
    fp16_db: float = 40.0
    picture: float = 0.0


NETWORKS = [
    Network("centerface", {"input.1": (1, 3, 96, 128)}, 95, 40, 1),
    Network("ch_PP-OCRv4_det_infer", {"x": (1, 3, 96, 128)}, 80, 40, 128),
    Network("ch_PP-OCRv4_rec_infer", {"x": (1, 3, 48, 160)}, 80, 40, 128),
    Network("ch_ppocr_mobile_v2.0_cls_infer", {"x": (1, 3, 48, 192)}, 80, 40, 128),
    Network("coco_ssd_mbv2_300", {}, 80, 40, 128),
    Network("efficientnet_lite0", {"image": (1, 3, 224, 224)}, 120, 45, 128),
    Network("kws_ref_model_float32", {"input_1": (1, 49, 10, 1)}, 100, 45),
    Network("resnet8_cifar10_fp32", {"input_1": (1, 32, 32, 3)}, 100, 45),
    Network("resnet8_cifar10_int8_qdq", {"input_1_int8": (1, 32, 32, 3)}, 100, 30),
    Network("silero_vad", {"input": (1, 576), "state": (2, 1, 128)}, 100, 45),
    Network("silero_vad_16k_sequence", {"input": (4, 576)}, 90, 40),
    Network("vww_96_float", {"input_1": (1, 96, 96, 3)}, 100, 45),
    Network("vww_96_int8", {"input_1_int8": (1, 96, 96, 3)}, 100, 30),
    Network("yolox_nano", {}, 100, 40, 1),
]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_answers(network: Network, precision: str, shared: Path, tmp_path: Path) -> None:
    source = open_model(shared / "models" / f"{network.name}.onnx", network.shapes)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    given = feeds(inputs, Case((0, 0), picture=network.picture))
    made = compile_model(canonical, find_profile("coreml"), precision)
    made = refined_model(canonical, find_profile("coreml"), precision, made, [given])
    runner = open_runner(write_files(made, tmp_path), inputs, outputs, made.options, 2)
    expected, got = Reference(source).run(given), runner.run(given)
    least = network.fp32_db if precision == "fp32" else network.fp16_db
    for name, array in expected.items():
        assert np.isfinite(got[name]).all()
        assert snr_db(array, got[name]) >= least, name
    assert not runner.facts().get("float16_overflows")


@pytest.mark.parametrize("device", ["ios-15", "mac-m2", "ios-26"])
@pytest.mark.parametrize("name", ["kws_ref_model_float32", "resnet8_cifar10_int8_qdq", "silero_vad"])
def test_every_system_answers_alike(name: str, device: str, shared: Path, tmp_path: Path) -> None:
    """The same model built for other systems than the generic profile's; all were, once (docs/coreml.md)."""
    network = next(one for one in NETWORKS if one.name == name)
    source = open_model(shared / "models" / f"{name}.onnx", network.shapes)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    made = compile_model(canonical, find_profile(device), "fp32")
    runner = open_runner(write_files(made, tmp_path), inputs, outputs, made.options, 2)
    given = feeds(inputs, Case((0, 0)))
    expected, got = Reference(source).run(given), runner.run(given)
    assert min(snr_db(array, got[key]) for key, array in expected.items()) >= 100


def test_integers_are_those_of_onnx_runtime(shared: Path, tmp_path: Path) -> None:
    """Layer by layer: every int8 code of a Q/DQ network in float32 arithmetic."""
    import onnx_ir as ir
    from edgekit_coreml.interpreter.execute import Executor
    from edgekit_coreml.interpreter.program import Op, find_in_package, read_package

    shapes = {"input_1_int8": (1, 32, 32, 3)}
    source = open_model(shared / "models" / "resnet8_cifar10_int8_qdq.onnx", shapes)
    run_passes(source)
    made = compile_model(source, find_profile("coreml"), "fp32")
    files = write_files(made, tmp_path)
    manifest = next(path for name, path in files.items() if name.endswith("Manifest.json"))
    executor = Executor(read_package(*find_in_package(manifest)))
    seen: dict[str, Array] = {}

    def trace(op: Op, name: str, array: Array) -> None:
        if op.type == "quantize":
            seen[name] = array.copy()

    given = feeds(signature(source)[0], Case((0, 0)))
    executor.run({made.options["inputs"][0]["mil"]: given["input_1_int8"].astype(np.int32)}, trace)
    watched = source.clone()
    codes = [n.outputs[0] for n in watched.graph if n.op_type == "QuantizeLinear"]
    watched.graph.outputs.extend(v for v in codes if not v.is_graph_output())
    expected = Reference(ir.from_proto(ir.to_proto(watched))).run(given)
    names = [str(v.name) for v in codes]
    assert len(seen) == len(names) > 10
    for name, got in zip(names, seen.values(), strict=True):
        np.testing.assert_array_equal(got, expected[name])

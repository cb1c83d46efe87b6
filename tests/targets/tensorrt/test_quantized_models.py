"""int8 of every shared model, as it is stored for TensorRT: the emitted pairs obey TensorRT's rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_tensorrt.acceptance import ask_compiler
from edgekit_tensorrt.compile import compile_model, quantized_nodes
from edgekit_tensorrt.quant_rules import rules
from edgekit_tensorrt.rules import broken_rules

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.rewriting import array_of, int_of, producer_of
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.placement_presets import floats_of, rules_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from tests.fixtures.graphs import NEAREST, with_weights
from tests.targets.engine_trial import profile

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_shared]

MODELS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "yolox_nano": {"images": (1, 3, 160, 160)},
    "efficientnet_lite0": {"image": (1, 3, 224, 224)},
    "centerface": {"input.1": (1, 3, 128, 160)},
    "coco_ssd_mbv2_300": {},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 160, 160)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 160)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
    "kws_ref_model_float32": {"input_1": (1, 49, 10, 1)},
    "resnet8_cifar10_fp32": {"input_1": (1, 32, 32, 3)},
    "vww_96_float": {"input_1": (1, 96, 96, 3)},
}
SMALL = ("ch_ppocr_mobile_v2.0_cls_infer", "kws_ref_model_float32", "resnet8_cifar10_fp32", "vww_96_float")
PLACEMENTS = rules(profile("tensorrt")).placements
TRIED = [(name, "all, centred") for name in MODELS if name not in SMALL]
TRIED += [(name, placement) for name in SMALL for placement in PLACEMENTS]
"""The richest placement of every model, and all of those that cost little."""


@lru_cache(maxsize=1)
def observed(path: Path) -> tuple[ir.Model, Mapping[str, Observation]]:
    """The canonical graph, and what was seen of it on noise: places and forms do not hang on the numbers."""
    model = open_model(path, dict(MODELS[path.stem]))
    run_passes(model)
    model = with_float_weights(model)
    draw = np.random.default_rng(1)
    shapes = {str(value.name): static_dims(value) or () for value in model.graph.inputs}
    return model, observe(model, [{name: draw.random(s).astype(np.float32) for name, s in shapes.items()}])


def quantized(path: Path, placement: str) -> ir.Model:
    model, seen = observed(path)
    own = rules_of(placement, rules(profile("tensorrt")))
    plan = place(model, own, seen, NEAREST, floats_of(placement, find_kernels(model, own)))
    return emit(model, with_weights(model, plan, own), own)


def nodes(model: ir.Model, *ops: str) -> Iterator[ir.Node]:
    return (node for node in model.graph if node.op_type in ops)


def stored(value: ir.Value | None) -> ir.Node | None:
    """The pair behind a value, also where a constant was added to it: one stored about its own middle."""
    pair = producer_of(value, "DequantizeLinear")
    add = producer_of(value, "Add")
    if pair is None and add is not None and array_of(add.inputs[1]) is not None:
        pair = producer_of(add.inputs[0], "DequantizeLinear")
    return pair


@pytest.mark.parametrize(("name", "placement"), TRIED)
def test_the_pairs_obey_every_rule(shared: Path, name: str, placement: str) -> None:
    given = quantized(shared / "models" / f"{name}.onnx", placement)
    files = compile_model(given, profile("tensorrt"), "int8").files
    model = ir.from_proto(onnx.ModelProto.FromString(files["model.onnx"]))
    found = broken_rules(model, "tensorrt")
    assert {(f.op, f.message) for f in found} <= {("Conv", "only its input is int8")}
    for node in nodes(model, "QuantizeLinear", "DequantizeLinear"):
        scale, zero = array_of(node.inputs[1]), array_of(node.inputs[2])
        assert scale is not None
        assert zero is not None
        assert zero.dtype == np.int8
        assert not zero.any()
        assert (scale > 0).all()
        assert node.op_type == "DequantizeLinear" or scale.size == 1
    named = json.loads(bytes(files["trt.json"]))["int8"]
    assert named == quantized_nodes(model)
    for node in nodes(model, "Conv", "Gemm", "MatMul"):
        pair = producer_of(node.inputs[1], "DequantizeLinear")
        if node.name not in named or pair is None or array_of(pair.inputs[0]) is None:
            continue
        scale, weights = array_of(pair.inputs[1]), array_of(pair.inputs[0])
        assert scale is not None
        assert weights is not None
        axis = {"Conv": 0, "Gemm": 1 - int_of(node, "transB", 0), "MatMul": 1}[node.op_type]
        assert scale.shape == (weights.shape[axis],)
        assert int_of(pair, "axis", 1) % weights.ndim == axis
        for bias in node.inputs[2:]:
            assert array_of(bias) is not None, "a bias behind a DequantizeLinear is refused"
    for node in nodes(model, "Concat"):
        scales = {float(array_of(pair.inputs[1])) for pair in map(stored, node.inputs) if pair}  # type: ignore[arg-type]
        if all(stored(value) for value in node.inputs):
            assert len(scales) == 1
    if placement != "no riders":
        for node in nodes(model, "Add"):
            if any(stored(value) for value in node.inputs) and all(array_of(v) is None for v in node.inputs):
                assert all(stored(value) for value in node.inputs), node.name


@pytest.mark.needs_tensorrt_compiler
@pytest.mark.parametrize("name", list(MODELS)[:7])
def test_nvidias_compiler_computes_them_on_int8(shared: Path, name: str) -> None:
    """At least 95 % of what the plan stores; the plan names what it leaves in float."""
    given = quantized(shared / "models" / f"{name}.onnx", "all, centred")
    files = compile_model(given, profile("tensorrt"), "int8").files
    named = json.loads(bytes(files["trt.json"]))["int8"]
    answer = ask_compiler(bytes(files["model.onnx"]), named)
    assert answer.accepted
    assert len(answer.quantized) >= 0.95 * len(named) > 0

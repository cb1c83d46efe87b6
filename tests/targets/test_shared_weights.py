"""Layers that share a weight share it in the artifact of every target, in every form."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.target.build_target import resolve
from edgekit.target.registry import compiler, engine
from edgekit.tensor_spec import Array
from tests.targets.engine_trial import profile, put_down

LAYERS = 8
WIDTH, CHANNELS, ROWS, WORDS = 384, 128, 4, 800
OWN_BYTES = 10_000
"""What a layer may have of its own: its node, its bias, its scales and the sums of its columns."""
KINDS = ("identity", "transpose", "gemm", "conv", "normalized", "tied")
BYTES = {"fp32": 4, "fp16": 2, "int8": 1, "int8-weights": 1, "int8-dynamic": 1}
"""Bytes of one number."""
TABLE_BYTES = {
    ("tflite", "fp16"): 4,
    ("tensorrt", "fp16"): 4,
    ("coreml", "int8"): 2,
    ("coreml", "int8-weights"): 4,
}
"""The same of an embedding that is read by Gather, where that is another form than the product's: float."""


def marks(target: str) -> list[pytest.MarkDecorator]:
    return [
        pytest.mark.needs_ort,
        *([] if target in ("ort", "tflm") else [getattr(pytest.mark, f"needs_{target}")]),
    ]


FORMS = {
    "ort": ("fp32", "fp16", "int8", "int8-weights", "int8-dynamic"),
    "openvino": ("fp32", "fp16", "int8", "int8-weights"),
    "tflite": ("fp32", "fp16", "int8", "int8-weights", "int8-dynamic"),
    "coreml": ("fp32", "fp16", "int8", "int8-weights"),
    "tensorrt": ("fp32", "fp16", "int8"),
    "tflm": ("fp32", "int8"),
}
CASES = [
    pytest.param(kind, target, form, marks=marks(target))
    for target, forms in FORMS.items()
    for form in forms
    for kind in KINDS
    if not (target == "tflm" and kind == "tied")  # TFLite Micro has no kernel for its Gather
    and not (form == "int8-dynamic" and target == "ort" and kind in ("conv", "normalized"))
]


def noise(seed: int, *shape: int) -> Array:
    fan_in = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
    drawn: Array = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(fan_in / 2)
    return drawn.astype(np.float32)


def layers(kind: str) -> onnx.ModelProto:
    """LAYERS layers that share one weight; ``tied``: an embedding that is the last product's matrix, too."""
    nodes, constants, x = [], {"b": noise(1, WIDTH) / 4}, "x"
    shape = [ROWS, WIDTH] if kind == "gemm" else [1, ROWS, WIDTH]
    if kind in ("conv", "normalized"):
        side = 3 if kind == "conv" else 1
        channels = CHANNELS if kind == "conv" else WIDTH
        shape = [1, channels, 4, 4]
        constants = {"W": noise(2, channels, channels, side, side)}
        constants |= {name: noise(k, channels) for k, name in enumerate(("g", "h", "m"))}
        constants |= {"g": np.abs(constants["g"]) + 1, "v": np.abs(noise(9, channels)) + 1}
    elif kind == "tied":
        constants["W"], x = noise(2, WORDS, WIDTH), "embedded"
        nodes.append(helper.make_node("Gather", ["W", "x"], [x]))
        constants["U"] = noise(3, 16, WIDTH)
    else:
        constants["W"] = noise(2, WIDTH, WIDTH)
    for k in range(LAYERS if kind != "tied" else 0):
        w, y, z = f"w{k}", f"y{k}", f"z{k}"
        match kind:
            case "identity":
                nodes.append(helper.make_node("Identity", ["W"], [w]))
                nodes.append(helper.make_node("MatMul", [x, w], [y]))
            case "transpose":
                nodes.append(helper.make_node("Transpose", ["W"], [w], perm=[1, 0]))
                nodes += [
                    helper.make_node("MatMul", [x, w], [f"p{k}"]),
                    helper.make_node("Add", [f"p{k}", "b"], [y]),
                ]
            case "gemm":
                nodes.append(helper.make_node("Gemm", [x, "W", "b"], [y], transB=1))
            case "conv":
                nodes.append(helper.make_node("Conv", [x, "W", "h"], [y], pads=[1, 1, 1, 1]))
            case "normalized":
                nodes.append(helper.make_node("Conv", [x, "W"], [f"c{k}"]))
                nodes.append(helper.make_node("BatchNormalization", [f"c{k}", "g", "h", "m", "v"], [y]))
        if k == LAYERS - 1:  # its channels have one size, so that int8 does not leave it float
            x = y
            break
        nodes.append(helper.make_node("Relu", [y], [z]))
        x = z
    out = shape
    if kind == "tied":
        nodes.append(helper.make_node("Transpose", ["W"], ["turned"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", [x, "turned"], ["scores"]))
        x, shape, out = "scores", [1, ROWS], [1, ROWS, WORDS]
    used = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used]
    given = helper.make_tensor_value_info(
        "x", TensorProto.INT64 if kind == "tied" else TensorProto.FLOAT, shape
    )
    made = helper.make_tensor_value_info(x, TensorProto.FLOAT, out)
    graph = helper.make_graph(nodes, kind, [given], [made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def samples(kind: str, count: int) -> list[Sample]:
    rng = np.random.default_rng(5)
    if kind == "tied":
        return [{"x": rng.integers(0, WORDS, (1, ROWS))} for _ in range(count)]
    shapes = {"gemm": (ROWS, WIDTH), "conv": (1, CHANNELS, 4, 4), "normalized": (1, WIDTH, 4, 4)}
    shape = shapes.get(kind, (1, ROWS, WIDTH))
    return [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


Opened = Callable[[str], tuple[ir.Model, ir.Model]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Kind -> the source model and its canonical graph."""

    @cache
    def opened(kind: str) -> tuple[ir.Model, ir.Model]:
        path = tmp_path_factory.mktemp(kind) / "model.onnx"
        onnx.save(layers(kind), path)
        source, canonical = open_model(path), open_model(path)
        run_passes(canonical)
        return source, canonical

    return opened


def in_form(canonical: ir.Model, target: str, form: str, kind: str) -> ir.Model:
    rules = resolve(profile(target)).rules
    if form.startswith("int8-"):
        assert rules is not None
        op = "Conv" if kind in ("conv", "normalized") else "MatMul"
        row = next(row for row in rules.weight_forms if row.name == form and op in row.ops)
        return with_stored_weights(canonical, rules, row, samples(kind, 4))[0]
    if form == "int8":
        assert rules is not None
        given = samples(kind, 8)
        plan = place(canonical, rules, observe(canonical, given), Recipe(samples=4))
        return emit(canonical, optimize(canonical, plan, rules, given, Recipe(samples=4)), rules)
    return canonical


@pytest.mark.parametrize(("kind", "target", "form"), CASES)
def test_a_shared_weight_is_stored_once(
    kind: str, target: str, form: str, opened: Opened, tmp_path: Path
) -> None:
    source, canonical = opened(kind)
    model = in_form(canonical, target, form, kind)
    known = resolve(profile(target)).info.precisions
    artifact = compiler(target).compile_model(model, profile(target), form if form in known else "fp32")
    shared = source.graph.initializers["W"].const_value
    assert shared is not None
    number = BYTES[form]
    if kind == "tied" and ((target, form) in TABLE_BYTES or form.startswith("int8")):
        number += TABLE_BYTES.get((target, form), 4)
    size = sum(map(len, artifact.files.values()))
    assert size < 1.1 * shared.size * number + LAYERS * (OWN_BYTES + 16 * WIDTH)
    if (kind, target, form) == ("gemm", "tflite", "fp16"):
        assert artifact.facts["ops"]["DEQUANTIZE"] == 1
    if target in ("tensorrt", "tflm"):
        return  # what runs them is not installed everywhere
    files = put_down(artifact, tmp_path / "files")
    runner = engine(target).open_runner(files, *signature(source), artifact.options, 1)
    given = samples(kind, 1)[0]
    (expected,) = Reference(model).run(given).values()
    (made,) = runner.run(given).values()
    off = np.linalg.norm(made - expected) / np.linalg.norm(expected)
    assert off < {"fp32": 1e-5, "fp16": 0.005, "int8-weights": 0.005}.get(form, 0.08)
    runner.close()

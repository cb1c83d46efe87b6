"""--io uint8: the same frames through the whole build and a session, with bytes and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from edgekit_openvino.run import executed_layers, layer_precision
from PIL import Image

import edgekit
from edgekit.cli import main
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.lowering.byte_input import byte_card, fold_bytes
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.errors import SampleError, UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.runtime import Session
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.graphs import NEAREST, Graph, with_weights
from tests.targets.engine_trial import put_down

ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("openvino", marks=pytest.mark.needs_openvino),
    pytest.param("tflite", marks=pytest.mark.needs_tflite),
]
SCORES = "matmul6"
CARD: dict[str, Any] = {
    "title": "four classes",
    "inputs": {
        "image": {
            "kind": "image", "shape": [1, 3, 32, 48], "layout": "NCHW", "colour": "BGR",
            "resize": "letterbox", "pad": 114, "mean": [127, 127, 127], "std": [128, 100, 80],
        }
    },
    "task": {"kind": "classify", "decode": "logits", "outputs": {"scores": SCORES}},
}  # fmt: skip
FRAME = np.random.default_rng(9).integers(0, 256, (37, 90, 3), dtype=np.uint8)


def card() -> Card:
    return parse_card(CARD)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Two padded convolutions and a classifier."""
    graph = Graph({"image": [1, 3, 32, 48]})
    first = graph("Conv", "image", graph.weights(16, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    x = graph("Relu", first)
    x = graph("Relu", graph("Conv", x, graph.weights(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    x = graph("Flatten", graph("GlobalAveragePool", x))
    graph.model(tmp_path, graph("MatMul", x, graph.weights(16, 4)))
    return tmp_path / "small.onnx"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(12):
        small = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), dtype=np.uint8)
        Image.fromarray(small).resize((70, 50)).save(folder / f"{seed}.png")
    return folder


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("tflm", marks=pytest.mark.needs_tflm)])
def test_bytes_give_what_floats_give(network: Path, photos: Path, engine: str) -> None:
    of_floats = edgekit.build(network, targets=[engine], card=card(), samples=photos)
    of_bytes = edgekit.build(network, targets=[engine], card=card(), samples=photos, io="uint8")
    (variant,) = of_bytes.variants
    assert variant.verified
    assert of_bytes.manifest["options"]["io"] == {"image": "uint8"}
    assert of_bytes.manifest["source"] == of_floats.manifest["source"]
    assert [str(spec) for spec in of_bytes.inputs] == ["image uint8 1x32x48x3"]
    assert of_bytes.golden[0][0]["image"].dtype == np.uint8
    emulated = "tflm" if engine == "tflm" else None  # sessions use an emulation by name only
    with (
        Session(of_floats, engine=emulated, strict=True) as floats,
        Session(of_bytes, engine=emulated, strict=True) as pixels,
    ):
        feeds, _ = pixels.prepare(FRAME)
        assert feeds["image"].dtype == np.uint8
        assert feeds["image"].shape == (1, 32, 48, 3)
        assert (feeds["image"][0, -1] == 114).all()  # the letterbox's rest
        got = pixels.run(feeds)[SCORES]
        expected = floats.run(floats.prepare(FRAME)[0])[SCORES]
        np.testing.assert_allclose(got, expected, atol=1e-4)
        (result,) = pixels.stream([FRAME])
        answer = pixels.predict(FRAME)
        swapped = pixels.predict(np.ascontiguousarray(FRAME[:, :, ::-1]), order="bgr")
        for other in (result.answer, swapped):
            np.testing.assert_array_equal(other.scores, answer.scores)


def way_to_convolution(runner: Any) -> list[str]:
    """What OpenVINO executes between its first integer convolution and the input, backwards."""
    layers = executed_layers(runner._compiled)
    kinds = [layer.get_rt_info()["layerType"].astype(str) for layer in layers]
    layer, found = layers[kinds.index("Convolution")], []
    assert layer_precision(layer) in ("i8", "u8")
    while layer.inputs():
        layer = layer.input_value(0).get_node()
        found.append(layer.get_rt_info()["layerType"].astype(str))
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_int8_reads_the_bytes(network: Path, photos: Path, tmp_path: Path, engine: str) -> None:
    model, target = open_model(network), resolve(find_profile(engine))
    run_passes(model)
    fold_bytes(model, card().image_input())
    inputs, outputs = signature(model)
    samples = load_samples(photos, inputs, byte_card(card(), "image")).arrays
    assert target.rules is not None
    plan = place(model, target.rules, observe(model, samples), NEAREST)
    quantized = emit(model, with_weights(model, plan, target.rules), target.rules)
    artifact = target.compiler.compile_model(quantized, target.profile, "fp32")
    files = put_down(artifact, tmp_path / "files")
    runner = target.engine.open_runner(files, inputs, outputs, artifact.options, 1)
    expected, got = Reference(model).run(samples[0])[SCORES], runner.run(samples[0])[SCORES]
    assert np.abs(got - expected).max() < 0.1 * np.abs(expected).max()
    if engine == "ort":
        graph = onnx.load(files["model.onnx"]).graph
        assert "Cast" not in [node.op_type for node in graph.node]
        first = {kind: next(n for n in graph.node if n.op_type == kind) for kind in ("Transpose", "Pad")}
        assert first["Pad"].input[0] == first["Transpose"].output[0]  # from three channels to four
        read = next(node for node in graph.node if node.op_type == "DequantizeLinear").input[0]
        assert read == first["Pad"].output[0]
    elif engine == "openvino":
        assert way_to_convolution(runner) == ["Reorder", "Input"]  # of bytes, without a copy
    else:
        (quantize,) = runner.facts()["outside_delegate_nodes"]  # from uint8 to int8, of as many bytes
        assert quantize["op"] == "QUANTIZE"
        assert artifact.options["inputs"][0]["dtype"] == "uint8"
    runner.close()


@pytest.mark.needs_tflite
@pytest.mark.needs_ort
def test_an_imported_model_is_compared_with_what_it_takes(network: Path, tmp_path: Path) -> None:
    made = edgekit.build(network, targets=["tflite"], card=card())
    file = tmp_path / "network.tflite"
    file.write_bytes(bytes(made.read(made.variants[0].files["model.tflite"])))
    bundle = edgekit.build(file, targets=["ort"], card=card(), io="uint8")
    assert bundle.manifest["source"]["imported"]["compared"]["samples"] > 0
    assert bundle.inputs[0].dtype == "uint8"


@pytest.mark.needs_ort
def test_what_does_not_fit_is_refused(network: Path, tmp_path: Path) -> None:
    floats = [{"image": np.zeros((1, 3, 32, 48), np.float32)}]
    with pytest.raises(SampleError, match="uint8"):
        edgekit.build(network, targets=["ort"], card=card(), samples=floats, io="uint8")
    for target in ("coreml", "tensorrt"):
        with pytest.raises(UsageError) as error:
            edgekit.build(network, targets=[target], card=card(), io="uint8")
        assert str(error.value) == f'{target} does not support io="uint8"; it supports nchw'


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_from_the_command_line(network: Path, tmp_path: Path) -> None:
    file, bundle = tmp_path / "card.toml", tmp_path / "m.edgekit"
    file.write_text(
        'title = "four"\n[inputs.image]\nkind = "image"\nshape = [1, 3, 32, 48]\nlayout = "NCHW"\n'
        'colour = "RGB"\nresize = "stretch"\nmean = [127.5, 127.5, 127.5]\nstd = [127.5, 127.5, 127.5]\n'
    )
    run = CliRunner().invoke
    built = run(
        main, ["build", str(network), "-t", "ort", "-t", "tflite", "--io", "image=uint8", "--card", str(file),
               "-o", str(bundle)],
    )  # fmt: skip
    assert built.exit_code == 0, built.output
    assert "input     image uint8 1x32x48x3" in run(main, ["inspect", str(bundle)]).output
    assert run(main, ["verify", str(bundle)]).exit_code == 0
    folder = tmp_path / "app"
    exported = run(main, ["export", str(bundle), "tflite-fp32", "--metadata", "-o", str(folder)])
    assert exported.exit_code == 0, exported.output
    picture = tmp_path / "frame.png"
    Image.fromarray(FRAME).save(picture)
    assert run(main, ["run", str(bundle), "-i", f"image={picture}"]).exit_code == 0

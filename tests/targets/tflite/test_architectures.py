"""Well-known structures: what is left to transpose, and that they compute what the reference computes.

No TRANSPOSE is due to a join: what is left is the source's layout at the inputs, one for each shuffle of
channels, and four for each attention (queries, keys, values, and the heads joined again).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.compiler.lowering.io_layouts import lay_out
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.target import Artifact
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.targets.tflite.architectures import INT64, light, sentence_encoder, vision_transformer
from tests.targets.tflite.running import compiled, ran, snr_db

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]


def checked(network: onnx.ModelProto, folder: Path, io: str = "nchw") -> tuple[Artifact, float]:
    """The network compiled, and the least SNR of its outputs on LiteRT against the reference."""
    path = folder / "network.onnx"
    onnx.save(network, path)
    model = open_model(path)
    reference, feeds = Reference(model), inputs_of(network)
    expected = reference.run(feeds)
    run_passes(model)
    lay_out(model, io, [resolve(find_profile("tflite"))])
    artifact = compiled(model)
    given = {n: x.transpose(0, 2, 3, 1) if io == "nhwc" else x for n, x in feeds.items()}
    answers = ran(artifact, given)
    return artifact, min(snr_db(x, answers[name]) for name, x in expected.items())


def inputs_of(network: onnx.ModelProto) -> dict[str, Array]:
    """Noise; of whole numbers words, and a mask that ends before the sentence does."""
    draw, feeds = np.random.default_rng(1), {}
    for value in network.graph.input:
        kind = value.type.tensor_type
        shape = tuple(d.dim_value for d in kind.shape.dim)
        if kind.elem_type == INT64:
            feeds[value.name] = np.broadcast_to(np.arange(shape[1]) < shape[1] * 3 // 4, shape).astype(
                np.int64
            )
            if value.name == "input_ids":
                feeds[value.name] = draw.integers(0, 1000, shape)
        else:
            feeds[value.name] = draw.standard_normal(shape).astype(np.float32)
    return feeds


@pytest.mark.parametrize(("io", "transposes"), [("nchw", 17), ("nhwc", 16)])
def test_shufflenet_transposes_once_for_each_shuffle(io: str, transposes: int, tmp_path: Path) -> None:
    artifact, snr = checked(light("shufflenet"), tmp_path, io)
    assert len(artifact.facts["transposes"]) == transposes
    assert artifact.facts["transposed_bytes"] == 5_136_768 + 602_112 * (io == "nchw")
    assert snr >= 100


@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "squeezenet"])
def test_a_convolutional_network_transposes_its_input(name: str, tmp_path: Path) -> None:
    artifact, snr = checked(light(name), tmp_path)
    assert [row["size_bytes"] for row in artifact.facts["transposes"]] == [224 * 224 * 3 * 4]
    assert snr >= 90


@pytest.mark.parametrize(("io", "transposes"), [("nchw", 17), ("nhwc", 16)])
def test_a_vision_transformer_transposes_four_times_a_layer(io: str, transposes: int, tmp_path: Path) -> None:
    network = vision_transformer(layers=4, width=48, heads=6, side=64)
    artifact, snr = checked(network, tmp_path, io)
    assert len(artifact.facts["transposes"]) == transposes
    assert artifact.facts["outside_xnnpack"] == []
    assert snr >= 100


@pytest.mark.parametrize(("width", "length"), [(96, 32), (384, 128)])
def test_a_sentence_encoder_runs(width: int, length: int, tmp_path: Path) -> None:
    artifact, snr = checked(sentence_encoder(layers=6, width=width, heads=12, length=length), tmp_path)
    assert snr >= 100
    assert len(artifact.facts["transposes"]) == 24
    assert artifact.facts["ops"]["GELU"] == 6
    # Of the masks and the words, once each; nothing within the layers.
    outside = {row["op"] for row in artifact.facts["outside_xnnpack"]}
    assert outside <= {"GATHER", "CAST", "LESS", "SELECT_V2", "ADD of int32"}

"""Language models with integer weights: each engine computes what the integers stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.verify import write_files
from edgekit.errors import UsageError
from edgekit.generate.device.decoder_registry import decoder_compiler, open_decoder
from edgekit.generate.host.weights.language import quantize_decoder
from tests.generate.targets.architecture_kinds import EXPERT_KINDS, KINDS
from tests.generate.targets.reference_decoder import reference_logits, tiny_model, with_integers

TOKENS = np.random.default_rng(7).integers(0, 80, 600).tolist()
ORT, OPENVINO = pytest.mark.needs_ort, pytest.mark.needs_openvino


@pytest.mark.parametrize(
    ("target", "precision", "block", "tied"),
    [
        pytest.param("ort", "int8", 32, True, marks=ORT),
        pytest.param("ort", "int4", 32, False, marks=ORT),
        pytest.param("openvino", "int8", 32, True, marks=OPENVINO),
        pytest.param("openvino", "int4", 32, False, marks=OPENVINO),
        pytest.param("tflite", "int8", 0, True, marks=pytest.mark.needs_tflite),
        pytest.param("tflite", "int8", 0, False, marks=pytest.mark.needs_tflite),
    ],
)
def test_logits_are_those_of_the_integers(
    target: str, precision: str, block: int, tied: bool, tmp_path: Path
) -> None:
    model = tiny_model(tied_embedding=tied)
    weights = quantize_decoder(model, precision, TOKENS, block=block or 32)
    artifact = decoder_compiler(target).compile_decoder(model, precision, weights, 64)
    decoder = open_decoder(target, write_files(artifact, tmp_path), artifact.options, 1)
    assert decoder.precision == precision
    # LiteRT rounds whole rows anew, after a rotation.
    expected = reference_logits(with_integers(model, weights) if block else model, TOKENS[:30])
    found = [decoder.forward(TOKENS[:20], 5), *(decoder.forward([token]) for token in TOKENS[20:30])]
    error = np.concatenate(found) - expected[15:]
    # Engines round inputs of such products to int8, and LiteRT's weights are compared before rounding.
    assert np.sqrt((error**2).mean()) < (0.05 if block else 0.1) * expected.std()
    decoder.row_consistent = True
    decoder.truncate(0)
    many = decoder.forward(TOKENS[:12], 12)
    decoder.truncate(0)
    single = np.concatenate([decoder.forward([token]) for token in TOKENS[:12]])
    np.testing.assert_allclose(single, many, atol=1e-4)
    decoder.truncate(6)
    np.testing.assert_allclose(decoder.forward(TOKENS[6:12], 6), many[6:], atol=1e-4)


@pytest.mark.parametrize("target", [pytest.param("ort", marks=ORT), pytest.param("openvino", marks=OPENVINO)])
@pytest.mark.parametrize("kind", EXPERT_KINDS)
@pytest.mark.parametrize("mlp_width", [96, 128])
def test_experts_are_rounded_and_their_router_is_not(
    target: str, kind: str, mlp_width: int, tmp_path: Path
) -> None:
    """``mlp_width`` 128: the product down has larger blocks than gate and up, which have 64 inputs."""
    model = tiny_model(**EXPERT_KINDS[kind], mlp_width=mlp_width)
    weights = quantize_decoder(model, "int8")
    assert [name for name in weights if "mlp.gate" in name] == []
    artifact = decoder_compiler(target).compile_decoder(model, "int8", weights, 64)
    decoder = open_decoder(target, write_files(artifact, tmp_path), artifact.options, 1)
    expected = reference_logits(with_integers(model, weights), TOKENS[:30])
    found = [decoder.forward(TOKENS[:20], 20), *(decoder.forward([token]) for token in TOKENS[20:30])]
    error = np.concatenate(found) - expected
    # Where inputs' rounding picks another expert a row differs more, so most rows are what counts.
    rows = np.sqrt((error**2).mean(axis=1)) / expected.std()
    assert np.median(rows) < 0.05
    with pytest.raises(UsageError, match="experts are not rounded to int4; build int8"):
        quantize_decoder(model, "int4", TOKENS)


@pytest.mark.needs_tflite
@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma"])
def test_turned_channels_of_other_architectures(kind: str, tmp_path: Path) -> None:
    model = tiny_model(**KINDS[kind])
    weights = quantize_decoder(model, "int8")
    artifact = decoder_compiler("tflite").compile_decoder(model, "int8", weights, 64)
    decoder = open_decoder("tflite", write_files(artifact, tmp_path), artifact.options, 1)
    expected = reference_logits(model, TOKENS[:20])
    error = decoder.forward(TOKENS[:20], 20) - expected
    assert np.sqrt((error**2).mean()) < 0.1 * expected.std()


@pytest.mark.parametrize("target", [pytest.param("ort", marks=ORT), pytest.param("openvino", marks=OPENVINO)])
def test_half_precision_weights_are_rounded_and_no_more(target: str, tmp_path: Path) -> None:
    model = tiny_model()
    artifact = decoder_compiler(target).compile_decoder(model, "fp16", {}, 64)
    decoder = open_decoder(target, write_files(artifact, tmp_path), artifact.options, 1)
    error = decoder.forward(TOKENS[:20], 20) - reference_logits(model, TOKENS[:20])
    assert 1e-5 < np.abs(error).max() < 0.05

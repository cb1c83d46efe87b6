"""Weights of language models as integers: grids kept, grids fitted, and the calibration's own arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.generate.host.readers.language.language_model import PackedWeight
from edgekit.generate.host.weights.language import quantize_decoder
from edgekit.generate.host.weights.language.block_rounding import centred4, fitted4, inverse_factor, nearest8
from edgekit.generate.host.weights.language.decoder_weights import run_layer
from edgekit.tensor_spec import Array
from tests.generate.targets.reference_decoder import reference_logits, tiny_model, with_integers

TEXT = np.random.default_rng(3).integers(0, 80, 600).tolist()
GEMMA = {
    "qk_norm": True, "output_norms": True, "activation": "gelu_tanh", "attention_softcap": 5.0,
    "sliding_window": 9, "sliding_layers": (True, False),
}  # fmt: skip


def test_int8_is_within_half_a_step() -> None:
    matrix = np.random.default_rng(0).standard_normal((24, 96)).astype(np.float32)
    for block, blocks in ((32, 3), (0, 1)):
        found = nearest8(matrix, block)
        assert found.scales.shape == (24, blocks)
        steps = np.repeat(found.scales, 96 // blocks, axis=1)
        assert (np.abs(found.floats() - matrix) <= 0.5001 * steps).all()


def test_int8_takes_the_largest_block_that_divides_the_inputs() -> None:
    model = tiny_model()
    found = quantize_decoder(model, "int8")
    inputs = {name: weights.inputs for name, weights in found.items()}
    assert {weights.block for weights in found.values()} == {64, 32}
    for name, weights in found.items():
        assert weights.block == (64 if inputs[name] % 64 == 0 else 32)
    wide = quantize_decoder(tiny_model(mlp_width=256), "int8")
    assert wide["model.layers.0.mlp.down_proj.weight"].block == 128
    assert {weights.block for weights in quantize_decoder(model, "int8", block=32).values()} == {32}


def test_a_fitted_grid_changes_a_layer_s_outputs_less_than_rounding_does() -> None:
    random = np.random.default_rng(1)
    matrix = random.standard_normal((48, 128)).astype(np.float32)
    inputs = random.standard_normal((900, 40)) @ random.standard_normal(
        (40, 128)
    )  # correlated, as activations
    moments = inputs.T @ inputs / len(inputs)
    found = fitted4(matrix, moments, 32)
    assert found.stored.max() <= 15
    blocks = matrix.reshape(48, 4, 32)
    low, step = blocks.min(-1, keepdims=True), np.ptp(blocks, axis=-1, keepdims=True) / 15
    rounded = (np.rint((blocks - low) / step) * step + low).reshape(matrix.shape)

    def error(other: Array) -> float:
        return float((((other - matrix) @ inputs.T) ** 2).mean())

    assert error(found.floats()) < 0.5 * error(rounded)


def test_the_inverse_s_factor_is_that_of_float64_and_survives_an_indefinite_matrix() -> None:
    random = np.random.default_rng(5)
    inputs = random.standard_normal((400, 300)) * np.exp(random.standard_normal(300))
    moments = (inputs.T @ inputs / 400).astype(np.float32)
    damped = moments + 0.1 * np.trace(moments) / 300 * np.eye(300)
    exact = np.linalg.cholesky(np.linalg.inv(damped.astype(np.float64))).T
    found = inverse_factor(moments)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, atol=1e-6 * np.abs(exact).max())
    indefinite = moments - np.float32(0.3 * np.trace(moments) / 300) * np.eye(300, dtype=np.float32)
    assert np.isfinite(inverse_factor(indefinite)).all()


def test_a_grid_that_counts_from_8_has_no_minima() -> None:
    random = np.random.default_rng(4)
    stored = random.integers(0, 16, (8, 64)).astype(np.uint8)
    scales = (random.random((8, 2)) + 0.1).astype(np.float32)
    plain, other = centred4(stored, scales, -8 * scales), centred4(stored, scales, -7 * scales)
    assert plain.minima is None
    assert other.minima is not None
    for weights, start in ((plain, 8), (other, 7)):
        expected = np.repeat(scales, 32, axis=1) * (stored.astype(np.float32) - start)
        np.testing.assert_allclose(weights.floats(), expected, atol=1e-5)


def test_a_file_s_own_grid_of_4_bits_is_kept() -> None:
    model, random = tiny_model(), np.random.default_rng(2)

    def packed(name: str) -> PackedWeight | None:
        rows, columns = model.config.weight_shapes()[name]
        integers = random.integers(0, 16, (rows, columns)).astype(np.uint8)
        scales = random.random((rows, columns // 32), np.float32) + 0.1
        return PackedWeight(4, 32, integers, scales, -5 * scales)

    found = quantize_decoder(replace(model, read_packed=packed), "int4")
    random = np.random.default_rng(2)
    for name, weights in found.items():
        if name != "model.embed_tokens.weight":
            expected = packed(name)
            assert expected is not None
            assert weights.bits == 4
            np.testing.assert_allclose(weights.floats(), expected.values(), atol=1e-4)
    assert found["model.embed_tokens.weight"].bits == 8


@pytest.mark.parametrize("changes", [{}, {"qkv_bias": True}, GEMMA], ids=["llama", "qwen2", "gemma"])
def test_calibration_computes_what_the_model_does(changes: dict[str, object]) -> None:
    model = tiny_model(**changes)  # type: ignore[arg-type]
    text = np.array(TEXT[:40])
    x = model.weight("model.embed_tokens.weight")[text][None]
    for layer in range(model.config.layers):
        x = run_layer(model, layer, x, lambda inputs, *names: [inputs @ model.weight(n).T for n in names])
    mean = (x**2).mean(-1, keepdims=True) + model.config.norm_eps
    logits = (x / np.sqrt(mean) * model.weight("model.norm.weight")) @ model.weight(
        "model.embed_tokens.weight"
    ).T
    np.testing.assert_allclose(logits[0], reference_logits(model, TEXT[:40]), atol=1e-3)


def test_int4_is_fitted_to_a_text_and_keeps_the_model_s_answers() -> None:
    model = tiny_model()
    found = quantize_decoder(model, "int4", TEXT)
    assert {name: weights.bits for name, weights in found.items()} == {
        name: 8 if name == "model.embed_tokens.weight" or "self_attn" in name else 4
        for name, shape in model.config.weight_shapes().items()
        if len(shape) == 2
    }
    exact, close = (reference_logits(each, TEXT[:60]) for each in (model, with_integers(model, found)))
    assert np.corrcoef(exact.ravel(), close.ravel())[0, 1] > 0.9


@pytest.mark.parametrize(("others", "bits"), [(5, 8), (6, 4)], ids=["5 and 6 bits", "6 bits only"])
def test_what_a_file_gives_more_bits_than_other_matrices_is_not_rounded_to_4(others: int, bits: int) -> None:
    model = tiny_model()

    def packed(name: str) -> PackedWeight | None:
        rows, columns = model.config.weight_shapes()[name]
        width = 6 if "down_proj" in name else others
        scales = np.full((rows, columns // 16), 0.01, np.float32)
        integers = np.clip(np.rint(model.weight(name) / 0.01) + (1 << (width - 1)), 0, (1 << width) - 1)
        return PackedWeight(width, 16, integers.astype(np.uint8), scales, -(1 << (width - 1)) * scales)

    found = quantize_decoder(replace(model, read_packed=packed), "int4", TEXT)
    name = "model.layers.1.mlp.down_proj.weight"
    assert found[name].bits == bits
    assert found["model.layers.1.mlp.up_proj.weight"].bits == 4
    if bits == 8:
        expected = packed(name)
        assert expected is not None
        np.testing.assert_allclose(found[name].floats(), expected.values(), atol=0.51 * 0.32 / 127)


def test_int4_without_a_text_says_what_it_needs() -> None:
    with pytest.raises(UsageError) as failure:
        quantize_decoder(tiny_model(), "int4", TEXT[:100])
    assert str(failure.value) == "int4 is fitted to a text, which needs at least 512 tokens; this one has 100"
    with pytest.raises(UsageError) as failure:
        quantize_decoder(tiny_model(), "int5")
    assert str(failure.value) == "language models are quantized to int8, int4, not int5"

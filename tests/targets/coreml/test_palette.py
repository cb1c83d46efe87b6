"""Weights as numbers of a table: k-means, the package through coremltools and the executor, and a build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_coreml.compile import compile_model
from edgekit_coreml.constants import grouped_tables, table_of
from edgekit_coreml.vendor import coremltools
from hypothesis import given, settings
from hypothesis import strategies as st

import edgekit
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.target.installed_profiles import find_profile
from edgekit.target.registry import engine
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import snr_db
from tests.fixtures import models
from tests.targets.engine_trial import put_down

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]


def error(values: Array, table: Array, places: Array) -> float:
    return float(np.square(table[places] - values).sum())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([16, 64]), st.floats(1e-3, 1e3))
def test_no_worse_than_equal_steps_and_each_takes_the_nearest(seed: int, count: int, size: float) -> None:
    values = np.random.default_rng(seed).standard_normal(5000) * size
    table, places = table_of(values, count)
    assert (np.diff(table) >= 0).all()
    steps = np.linspace(values.min(), values.max(), count)
    equal = np.abs(values[:, None] - steps).argmin(1)
    assert error(values, table, places) < error(values, steps, equal)
    nearest = np.abs(values[:, None] - table.astype(np.float64)).min(1)
    np.testing.assert_allclose(np.abs(values - table[places]), nearest, atol=1e-5 * size)


def test_as_many_values_as_the_table_has_are_kept() -> None:
    values = np.repeat(np.linspace(-1, 1, 16), 10)
    table, places = table_of(values, 16)
    np.testing.assert_allclose(table[places], values, atol=1e-7)


def test_a_table_for_each_sixteen_channels() -> None:
    weights = (
        np.random.default_rng(0).standard_normal((48, 8, 3, 3))
        * np.repeat([1, 10, 100], 16)[:, None, None, None]
    )
    tables, places = grouped_tables(weights, 16)
    assert (tables.shape, places.shape) == ((3, 1, 1, 1, 16, 1), weights.shape)
    assert np.abs(tables[0]).max() < 5 < np.abs(tables[2]).max()
    assert grouped_tables(weights[:40], 16)[0].shape == (1, 1, 1, 1, 16, 1)


@pytest.mark.parametrize("device", ["coreml", "iphone-12"])
@pytest.mark.parametrize(("precision", "bits", "least_db"), [("palette6", 6, 27), ("palette4", 4, 15)])
def test_the_package(precision: str, bits: int, least_db: float, device: str, tmp_path: Path) -> None:
    model = open_model(models.dense_network(tmp_path), {})
    inputs, outputs = signature(model)
    run_passes(model)
    made, half = (compile_model(model, find_profile(device), p) for p in (precision, "fp16"))
    assert made.facts["ops"]["constexpr_lut_to_dense"] == 4
    sizes = [sum(map(len, each.files.values())) for each in (half, made)]
    assert sizes[0] - sizes[1] > 0.9 * (16 - bits) / 8 * (2 * 128 * 128 + 128 * 72 + 128 * 64)
    files = put_down(made, tmp_path / "files")
    from coremltools.converters.mil.frontend.milproto.load import load

    package = coremltools().models.MLModel(str(tmp_path / "files/model.mlpackage"), skip_model_load=True)
    spec = package.get_spec()
    assert load(spec, spec.specificationVersion, package.weights_dir).functions["main"]
    runner = engine("coreml").open_runner(files, inputs, outputs, made.options, 1)
    assert runner.precision == "fp16"
    feeds = {"x": np.random.default_rng(1).normal(0, 1, (1, 8, 8, 8)).astype(np.float32)}
    assert snr_db(Reference(model).run(feeds)["y"], runner.run(feeds)["y"]) > least_db


def test_a_build_by_name_ships_it_alone_or_says_why_not(tmp_path: Path) -> None:
    path = models.dense_network(tmp_path)
    (variant,) = edgekit.build(path, targets=["iphone-12"], precision="palette6").variants
    assert (variant.name, variant.status) == (
        "iphone-12-palette6", "verified by reference execution; not run on Apple hardware",
    )  # fmt: skip
    assert variant.evidence["stored_weights"]["rounding"] == "k-means"
    parent, lost = edgekit.build(path, targets=["iphone-12"], precision="palette4", max_drop="40dB").variants
    assert parent.name == "iphone-12-fp32"
    assert lost.status.startswith("rejected: SNR ")
    with pytest.raises(UsageError, match="ort does not support palette6; use fp32, fp16, int8 or auto"):
        edgekit.build(path, targets=["ort"], precision="palette6")


def test_int8_weights_are_stored_as_integers_from_ios_16_on(tmp_path: Path) -> None:
    path = models.dense_network(tmp_path)
    for device, ios in (("ios-15", 16), ("coreml", 16), ("iphone-12", 18)):
        (variant,) = edgekit.build(path, targets=[device], precision="int8-weights").variants
        facts = variant.evidence["compile"]
        assert facts["deployment_target"] == f"iOS {ios}"
        assert facts["ops"]["constexpr_affine_dequantize"] == 4
        assert variant.evidence["agreement"]["value"] > 20

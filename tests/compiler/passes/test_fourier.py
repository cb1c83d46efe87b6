"""DFT and STFT as products, against ONNX Runtime's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.compiler.evaluate.noise_floor import with_exact_transforms
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes.expand_functions import expand_functions
from edgekit.diagnostics import Inexpressible
from tests.compiler.passes.meaning import folded, snr_db
from tests.compiler.passes.written_out import written_out

pytestmark = pytest.mark.needs_ort

DFT = (
    "g (float[{x}] x) => (float[{y}] y) <int64 axis = {{{axis}}}, int64 length = {{{length}}}> "
    "{{ y = DFT <{a}> (x, {given}, axis) }}"
)


@pytest.mark.parametrize(
    ("x", "y", "axis", "length", "attributes"),
    [
        ("2,5,12,1", "2,5,12,2", 2, 0, ""),
        ("2,5,12,1", "2,5,7,2", -2, 0, "onesided = 1"),
        ("2,5,12,2", "2,5,12,2", 1, 0, ""),
        ("2,5,12,2", "2,5,12,2", 2, 0, "inverse = 1"),
        ("2,16,3,1", "2,10,3,2", 1, 10, ""),  # cut
        ("2,6,3,2", "2,9,3,2", 1, 9, ""),  # zeros behind it
        ("7,1", "7,2", 0, 0, ""),
    ],
)
def test_dft(x: str, y: str, axis: int, length: int, attributes: str) -> None:
    given = "length" if length else ""
    written_out(DFT.format(x=x, y=y, axis=axis, length=length or 1, a=attributes, given=given), 110)


@pytest.mark.parametrize(("parts", "bins", "attributes"), [(1, 9, "onesided = 1"), (1, 16, "onesided = 0")])
@pytest.mark.parametrize("window", [True, False])
def test_stft(parts: int, bins: int, attributes: str, window: bool) -> None:
    values = ", ".join(f"{value:.6f}" for value in np.hanning(16))
    frames = (100 - 16) // 5 + 1
    written_out(
        f"g (float[2,100,{parts}] x) => (float[2,{frames},{bins},2] y) "
        f"<int64 step = {{5}}, int64 length = {{16}}, float[16] window = {{{values}}}> "
        f"{{ y = STFT <{attributes}> (x, step, {'window' if window else ''}, length) }}",
        110,
    )


def test_a_long_one_says_why() -> None:
    graph = DFT.format(x="1,4096,2", y="1,4096,2", axis=1, length=1, a="", given="")
    reasons: dict[str, Inexpressible] = {}
    assert not expand_functions(folded(graph), lambda node: node.op_type == "DFT", reasons=reasons)
    (reason,) = reasons.values()
    assert reason.reason.startswith(
        "DFT of 4096 numbers would be written out as 67,108,864 weights; the limit is "
    )


@pytest.mark.parametrize(("length", "inexact"), [(256, False), (200, True)])
def test_the_reference_loses_precision_where_the_length_is_no_power_of_two(
    length: int, inexact: bool
) -> None:
    model = folded(DFT.format(x=f"1,{length},1", y=f"1,{length},2", axis=1, length=1, a="", given=""))
    exact = with_exact_transforms(model)
    assert (exact is not None) is inexact
    x = np.random.default_rng(0).normal(size=(1, length, 1)).astype(np.float32)
    complexes = np.fft.fft(x[..., 0].astype(np.float64))
    truth = np.stack([complexes.real, complexes.imag], -1)
    as_it_is = snr_db(truth, Reference(model).run({"x": x})["y"])
    assert as_it_is < 100 if inexact else as_it_is > 120
    if exact is not None:
        assert snr_db(truth, Reference(exact).run({"x": x})["y"]) > 120


@pytest.mark.parametrize("attributes", ["axis = 2", ""])
def test_the_axis_of_an_older_opset(attributes: str) -> None:
    """Until opset 19 it is an attribute, and 1 by default, whatever the rank."""
    text = f"g (float[1,5,7,1] x) => (float[1,5,7,2] y) {{ y = DFT <{attributes}> (x) }}"
    model, x = folded(text, 17), np.random.default_rng(0).normal(size=(1, 5, 7, 1)).astype(np.float32)
    exact = with_exact_transforms(model)
    assert exact is not None
    spectra = np.fft.fft(x[..., 0].astype(np.float64), axis=2 if attributes else 1)
    truth = np.stack([spectra.real, spectra.imag], -1)
    assert snr_db(truth, Reference(exact).run({"x": x})["y"]) > 120


@pytest.mark.needs_tflite
def test_a_spectrogram_within_the_network_is_verified(tmp_path: Path) -> None:
    """STFT has one side of the spectrum by default; a length of 200 costs the reference precision."""
    graph = (
        "g (float[1,400,1] x) => (float[1,2,101,2] y) <int64 step = {160}, int64 length = {200}> "
        "{ y = STFT (x, step, , length) }"
    )
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {graph}'), tmp_path / "m.onnx"
    )
    (variant,) = edgekit.build(tmp_path / "m.onnx", targets=["tflite"]).variants
    assert variant.status.startswith("verified on ")
    assert variant.evidence["accuracy"]["y"]["limit_db"] < 100

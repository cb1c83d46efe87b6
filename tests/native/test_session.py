"""Sessions of libedgekit on ONNX Runtime, beside Python's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.runtime import Session
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.library import NativeBundle, NativeSession, RefusedError, compiled, ort_library
from tests.native.models import COLOUR_CARD, COLOURS, SWAPPED, colours_bundle, model_bundle, yolox_bundle

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_ort]
FRAME = np.random.default_rng(1).integers(0, 256, (48, 64, 3)).astype(np.uint8)


@pytest.fixture
def ort() -> str:
    found = ort_library()
    if not found:
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    return found


def test_a_run_gives_python_s_numbers(tmp_path: Path, ort: str) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
    with (
        Session(path, threads=1) as python,
        NativeBundle(path) as bundle,
        NativeSession(bundle, ort) as session,
    ):
        assert session.active == "colours"
        assert session.fallbacks == []
        for _ in range(3):
            assert (
                session.run({"image": x}, 1)["scores"].tobytes()
                == python.run({"image": x})["scores"].tobytes()
            )
        found, expected = session.predict(FRAME, "bgr"), python.predict(FRAME, order="bgr")
        assert found.labels == [one.label for one in expected]
        assert found.scores == pytest.approx(expected.scores, rel=1e-6)


def test_variants_that_do_not_run_are_left_with_their_reasons(tmp_path: Path, ort: str) -> None:
    right = onnx_bytes(COLOURS)
    models = {"elsewhere": b"x", "damaged": b"no model", "wrong": onnx_bytes(SWAPPED), "right": right}
    made = model_bundle(models, right, COLOUR_CARD, {"elsewhere": "tflite"})
    path = made.save(tmp_path / "four.edgekit")
    with NativeBundle(path) as bundle:
        with NativeSession(bundle, ort) as session:
            assert session.active == "right"
            first, second, third = session.fallbacks
            assert first == ("elsewhere", "damaged", "no engine for target tflite was handed in")
            assert second[:2] == ("damaged", "wrong")
            assert "did not load model.onnx" in second[2]
            assert third == (
                "wrong",
                "right",
                "output scores of a golden vector: SNR -6.0 dB; the limit is 20.0 dB",
            )
        with NativeSession(bundle, ort, variant="right") as session:
            assert (session.active, session.fallbacks) == ("right", [])
        with pytest.raises(
            RefusedError, match=r"(?s)variant wrong of .* does not run.*strict allows no fallback"
        ):
            NativeSession(bundle, ort, variant="wrong", strict=True)
        with pytest.raises(
            RefusedError, match="has no variant 'other'; it has elsewhere, damaged, wrong, right"
        ):
            NativeSession(bundle, ort, variant="other")


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, ort: str) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    with NativeBundle(path) as bundle, NativeSession(bundle, ort) as session:
        for x in (np.zeros((1, 3, 16, 15), np.float32), np.zeros((1, 3, 16, 16), np.float64)):
            with pytest.raises(RefusedError, match="the model takes image float32 1x3x16x16"):
                session.run({"image": x}, 1)
        with pytest.raises(RefusedError, match="input 0 is other float32"):
            session.run({"other": np.zeros((1, 3, 16, 16), np.float32)}, 1)
        assert session.run({"image": np.zeros((1, 3, 16, 16), np.float32)}, 1)["scores"].tolist() == [
            [0, 0, 0]
        ]


def test_a_nan_that_no_golden_vector_has_is_a_failure(tmp_path: Path, ort: str) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    infinite = np.full((1, 3, 16, 16), np.inf, np.float32)
    with (
        NativeBundle(path) as bundle,
        NativeSession(bundle, ort) as session,
        pytest.raises(RefusedError, match="values of output scores are NaN or infinite"),
    ):
        session.run({"image": infinite}, 1)


LINKED = """
import ctypes, sys
ort, library, linked = sys.argv[1:]
if linked == "1":
    ctypes.CDLL(ort, ctypes.RTLD_GLOBAL)
edgekit = ctypes.CDLL(library)
edgekit.edgekit_adapter.restype = ctypes.c_void_p
edgekit.edgekit_error.restype = ctypes.c_char_p
print(edgekit.edgekit_adapter(b"ort", None) is not None or edgekit.edgekit_error().decode())
"""


def test_the_engine_that_a_program_is_linked_with(ort: str) -> None:
    command = [sys.executable, "-c", LINKED, ort, str(compiled())]
    with_it, without = (
        subprocess.run([*command, linked], capture_output=True, text=True, timeout=100, check=True).stdout
        for linked in "10"
    )
    assert with_it == "True\n"
    if without != with_it:  # the system has no library of that name
        assert without.startswith("ONNX Runtime cannot be loaded from the system's libraries")


def test_a_library_that_is_not_onnx_runtime_is_refused(tmp_path: Path) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    with (
        NativeBundle(path) as bundle,
        pytest.raises(RefusedError, match="ONNX Runtime cannot be loaded from"),
    ):
        NativeSession(bundle, str(tmp_path / "libnothing.so"))


@pytest.mark.needs_shared
def test_yolox_finds_what_python_finds(tmp_path: Path, ort: str, shared: Path) -> None:
    from PIL import Image

    path = yolox_bundle(shared).save(tmp_path / "yolox.edgekit")
    photos = sorted((shared / "data" / "coco128").rglob("*.jpg"))[:4]
    count = 0
    with (
        Session(path, threads=1) as python,
        NativeBundle(path) as bundle,
        NativeSession(bundle, ort) as session,
    ):
        for photo in photos:
            frame = np.asarray(Image.open(photo).convert("RGB"))
            found, expected = session.predict(frame, "rgb"), python.predict(frame)
            assert found.indices.tolist() == expected.classes.tolist()
            assert found.scores.tobytes() == expected.scores.tobytes()
            assert np.abs(found.boxes - expected.boxes).max() <= 4e-4  # 8 ulp of 416 pixels, at 640 to 416
            count += len(found.indices)
    assert count > 5

"""The Kotlin wrapper on a JVM: the same answers as Python's on the same bundles, refusals and fallbacks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.kotlin_compiler import compile_program
from tests.native.library import ort_library
from tests.native.litert_models import litert_library, litert_yolox
from tests.native.models import COLOUR_CARD, COLOURS, SWAPPED, colours_bundle, model_bundle, yolox_bundle
from tests.native.sound_models import tones_bundle
from tests.web.host import first_photograph

pytestmark = [pytest.mark.needs_kotlin, pytest.mark.needs_compiler, pytest.mark.needs_ort]
LITERT_LOG = re.compile(r"(INFO|WARNING): .*\n")
FRAME = np.random.default_rng(1).integers(0, 256, (48, 64, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    library = ort_library()
    if not library:
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    return [*compile_program(tmp_path_factory.mktemp("kotlin")), f"ONNX_RUNTIME={library}"]


def answers(program: list[str], *commands: list[object]) -> list[list[list[str]]]:
    """Return the lines of each command, as their words."""
    text = "".join("\t".join(map(str, command)) + "\n" for command in commands)
    done = subprocess.run(program, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0
    assert re.sub(LITERT_LOG, "", done.stderr) == ""
    assert "WARNING in native method" not in done.stdout, done.stdout
    blocks = done.stdout.split("end\n")[:-1]
    assert len(blocks) == len(commands)
    return [[line.split("\t") for line in block.splitlines()] for block in blocks]


def numbers(words: list[str]) -> Array:
    return np.array([int(word, 16) for word in words], np.uint32).view(np.float32)


def raw(folder: Path, name: str, frame: Array) -> list[object]:
    """Write a picture's bytes; return its path, width and height."""
    (folder / name).write_bytes(frame.tobytes())
    return [folder / name, frame.shape[1], frame.shape[0]]


def test_a_classifier_and_arrays(tmp_path: Path, program: list[str]) -> None:
    path = colours_bundle().save(tmp_path / "größe.edgekit")
    frame = raw(tmp_path, "frame", FRAME)
    forms = ("RGB", "BGR", "colours")
    values = np.full((1, 3, 16, 16), 0.3, np.float32)
    described, *predicted, arrays = answers(
        program,
        ["describe", path, ""],
        *(["predict", path, "", form, *frame] for form in forms),
        ["run", path, "", values.size, 0.3, "1x3x16x16"],
    )
    assert described == [
        [
            "active",
            "Variant(name=colours, target=ort, profile=ort, precision=fp32, status=verified)",
        ],
        ["inputs", "[TensorSpec(name=image, dtype=float32, shape=[1, 3, 16, 16])]"],
        ["outputs", "[TensorSpec(name=scores, dtype=float32, shape=[1, 3])]"],
    ]
    with Session(path, threads=1) as python:
        for form, ((*_, kind), *items) in zip(forms, predicted, strict=True):
            expected = python.predict(FRAME, order="bgr" if form == "BGR" else "rgb")
            assert kind == "classify"
            assert [item[1:3] for item in items] == [[str(one.index), one.label] for one in expected]
            assert [len(item) for item in items] == [4, 4, 4]
            scores = np.concatenate([numbers(item[3:]) for item in items])
            assert scores == pytest.approx(expected.scores, rel=1e-6)
        ((word, name, dtype, shape, made),) = arrays
        assert [word, name, dtype, shape] == ["output", "scores", "float32", "[1, 3]"]
        assert numbers(made.split()).tobytes() == python.run({"image": values})["scores"].tobytes()


def test_refusals_and_fallbacks(tmp_path: Path, program: list[str]) -> None:
    right = onnx_bytes(COLOURS)
    card = {**COLOUR_CARD, "task": {**COLOUR_CARD["task"], "labels": ["rot 🔴", "grün", "blau"]}}
    models = {"damaged": b"no model", "wrong": onnx_bytes(SWAPPED), "right": right}
    path = model_bundle(models, right, card).save(tmp_path / "three.edgekit")
    (tmp_path / "zip.edgekit").write_bytes(b"PK\x03\x04")
    frame = raw(tmp_path, "frame", FRAME)
    described, labels, strict, unknown, damaged, absent, size, array, missing, closed = answers(
        program,
        ["describe", path, ""],
        ["predict", path, "", "RGB", *frame],
        ["strict", path, "wrong"],
        ["describe", path, "other"],
        ["describe", tmp_path / "zip.edgekit", ""],
        ["describe", tmp_path / "absent.edgekit", ""],
        ["predict", path, "", "RGB", frame[0], 48, 48],
        ["run", path, "", 12, 0, "1x3x2x2"],
        ["missing", path, ""],
        ["closed", path, ""],
    )
    (_, active), first, second, *_ = described
    assert active.startswith("Variant(name=right,")
    assert first[:3] == ["fallback", "damaged", "wrong"]
    assert "did not load model.onnx" in first[3]
    reason = "output scores of a golden vector: SNR -6.0 dB; the limit is 20.0 dB"
    assert second == ["fallback", "wrong", "right", reason]
    assert sorted(item[2] for item in labels[1:]) == ["blau", "grün", "rot 🔴"]
    for ((kind, text),), part in (
        (strict, "strict allows no fallback"),
        (unknown, "has no variant 'other'; it has damaged, wrong, right"),
        (damaged, "a bundle starts with b'EDGEKIT\\x00'"),
        (absent, "absent.edgekit"),
        (array, "the model takes image float32 1x3x16x16"),
    ):
        assert kind == "refused"
        assert part in text
    assert size == [["IllegalArgumentException", "a picture of 48 x 48 has 6912 values, not 9216"]]
    assert missing == [["IllegalArgumentException", "input image is missing"]]
    assert closed == [["IllegalStateException", "the session is closed"]]


def test_an_engine_that_is_absent(tmp_path: Path, program: list[str]) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    (((kind, text),),) = answers([*program[:-1], "ONNX_RUNTIME=libnothing.so"], ["describe", path, ""])
    assert kind == "refused"
    assert text.startswith("ONNX Runtime cannot be loaded from libnothing.so |")
    (((kind, text),),) = answers(program[:-1], ["describe", path, ""])  # the system has none
    assert kind == "refused"
    assert text.startswith("ONNX Runtime cannot be loaded from ")
    assert " | LiteRT cannot be loaded from " in text


def test_a_sound_in_pieces(tmp_path: Path, program: list[str]) -> None:
    path = tones_bundle().save(tmp_path / "tones.edgekit")
    heard = np.random.default_rng(0).normal(0, 0.2, 20_000).astype(np.float32)
    (tmp_path / "sound").write_bytes(heard.tobytes())
    refused, lines = answers(
        program,
        ["predict", path, "", "RGB", *raw(tmp_path, "frame", FRAME)],
        ["listen", path, "", tmp_path / "sound", 11_025, 3000],
    )
    assert refused[0][1].startswith("Tones takes a sound: its input bands is of kind ")
    windows = [line[1:] for line in lines if line[0] == "window"]
    items = [line[1:] for line in lines if line[0] == "item"]
    with Session(path, threads=1) as python:
        expected = list(python.listen(heard, rate=11_025))
    assert len(windows) == len(expected) > 10
    assert [(float(start), float(end), kind) for start, end, kind in windows] == [
        (one.start_s, one.end_s, "classify") for one in expected
    ]
    wanted = [item for one in expected for item in one.prediction]
    assert [item[1] for item in items] == [item.label for item in wanted]
    scores = np.concatenate([numbers(item[2:3]) for item in items])
    assert scores == pytest.approx([item.score for item in wanted], abs=1e-6)


@pytest.mark.needs_shared
@pytest.mark.needs_tflite
def test_litert_answers_as_python(tmp_path: Path, program: list[str], shared: Path) -> None:
    library = litert_library()
    path = litert_yolox(shared, tmp_path)
    frame = np.ascontiguousarray(first_photograph(shared))
    described, predicted = answers(
        [*program, f"LITERT={library}"],
        ["describe", path, ""],
        ["predict", path, "", "RGB", *raw(tmp_path, "frame", frame)],
    )
    assert described[0][1].startswith("Variant(name=tflite-fp32, target=tflite,")
    with Session(path, threads=1) as python:
        expected = python.predict(frame)
    assert [item[2] for item in predicted[1:]] == [item.label for item in expected]
    assert (
        np.concatenate([numbers(item[3:4]) for item in predicted[1:]]).tobytes() == expected.scores.tobytes()
    )
    assert len(predicted) > 3


@pytest.mark.needs_shared
def test_yolox_finds_what_python_finds(tmp_path: Path, program: list[str], shared: Path) -> None:
    from PIL import Image

    path = yolox_bundle(shared).save(tmp_path / "yolox.edgekit")
    photos = sorted((shared / "data" / "coco128").rglob("*.jpg"))[:4]
    frames = [np.asarray(Image.open(photo).convert("RGB")) for photo in photos]
    pictures = [raw(tmp_path, f"{i}", frame) for i, frame in enumerate(frames)]
    commands: list[list[object]] = [["predict", path, "", "colours", *picture] for picture in pictures]
    count = 0
    with Session(path, threads=1) as python:
        for frame, ((_, kind), *items) in zip(frames, answers(program, *commands), strict=True):
            expected = python.predict(frame)
            assert kind == "detect"
            assert [int(item[1]) for item in items] == expected.classes.tolist()
            rows = np.array([numbers(item[3:]) for item in items])
            assert rows[:, 0].tobytes() == expected.scores.tobytes()
            assert np.abs(rows[:, 1:] - expected.boxes).max() <= 4e-4  # 8 ulp of 416 pixels, at 640 to 416
            count += len(items)
    assert count > 5

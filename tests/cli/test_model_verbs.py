from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures import models
from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


def test_check_says_what_it_assumed(tmp_path: Path, call: Call) -> None:
    path = models.write(tmp_path, models.DYNAMIC)
    result = call("check", path, "-t", "ort")
    assert result.exit_code == 0
    assert "  note: not fixed in the model, so these were assumed: batch 1 of image; to" in result.stdout
    found = answer(call("check", path, "-t", "ort", "--json"))
    assert (found["ok"], [f["code"] for f in found["findings"]]) == (True, ["EK1107"])


def test_check_of_a_model_without_a_reference(tmp_path: Path, call: Call) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (uint16[4] x) => (uint16[4] y) { y = Max(x, x) }
    """
    path = models.write(tmp_path, text)
    result = call("check", path, "-t", "ort", "-t", "tflite")
    assert result.exit_code == 1
    first, second, *rest = result.stdout.splitlines()
    assert first == "  model.onnx can't be built"
    assert second.startswith(
        "    EK1005      no variant can be verified: ONNX Runtime cannot load the model: "
    )
    assert rest[:3] == ["", "  ort", "    EK1001  Max_0  Max  no CPU kernel for uint16, uint16"]
    assert not any(line.startswith("  next:") for line in rest)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("words", ["build -t ort -o a.edgekit", "check", "model card -o a.toml"])
def test_a_pipe_is_refused_at_once(words: str, tmp_path: Path, call: Call) -> None:
    """Opening a pipe without a writer would wait for ever."""
    os.mkfifo(tmp_path / "m.onnx")
    verb, *options = words.split(" -", 1)
    result = call(
        *verb.split(), tmp_path / "m.onnx", *(f"-{options[0]}".split() if options else ()), "--trusted"
    )
    assert result.exit_code == 2
    assert "m.onnx: is not a file; pass the .onnx file" in result.stderr


def test_a_loop_of_links_is_refused(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.onnx").symlink_to(tmp_path / "b.onnx")
    (tmp_path / "b.onnx").symlink_to(tmp_path / "a.onnx")
    result = call("build", tmp_path / "a.onnx", "-t", "ort", "-o", tmp_path / "c.edgekit")
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path / 'a.onnx'}: file not found\n  nothing was written\n"


def test_check_says_first_what_holds_for_all_targets(tmp_path: Path, call: Call) -> None:
    path = models.write(tmp_path, models.SEVERAL_DYNAMIC)
    result = call("check", path, "-t", "ort", "-t", "tensorrt")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "  model.onnx can't be built until its shapes are given",
        "    EK1003  x    it has dynamic dimensions; suggested: batch 1, L 16000 (an example); --shape "
        "x=1x16000",
        "",
        "  with them, it can't be built for tensorrt",
        "  with them, it can be built for ort",
        "",
        "  tensorrt",
        "    EK1003  NonZero_3  NonZero  found has a dynamic dimension; cut the model before it, or "
        "build it for ort",
        "    EK1002  TopK_1     TopK     k is 16000 and must be less than 3840; not with --shape x=1x512",
        "",
        f"  next: edgekit build {path} -t ort --shape x=1x16000 -o model.edgekit",
    ]
    found = answer(call("check", path, "-t", "tensorrt", "--json"))
    assert found["ok"] is False
    assert [row["avoided_by"] for row in found["findings"]] == ["", "", "--shape x=1x512"]


@pytest.mark.parametrize(
    ("given", "made"), [("2x3x16x16", [2, 3, 16, 16]), ("image=4x3x16x16", [4, 3, 16, 16])]
)
def test_a_shape_may_have_no_name(tmp_path: Path, call: Call, given: str, made: list[int]) -> None:
    path = models.write(tmp_path, models.DYNAMIC)
    found = answer(call("build", path, "-t", "ort", "--shape", given, "-o", tmp_path / "m.edgekit", "--json"))
    assert found["manifest"]["inputs"][0]["shape"] == made


@pytest.mark.parametrize("given", ["5", "=1x3", "image=1x3xa", "image", "1x-3", "1x0x3"])
def test_what_is_no_shape_is_refused(tmp_path: Path, call: Call, given: str) -> None:
    path = models.write(tmp_path, models.DYNAMIC)
    result = call("check", path, "-t", "ort", "--shape", given)
    assert result.exit_code == 2
    assert (
        f"Error: Invalid value for '--shape': {given!r} is not of the form [NAME=]1x3x480x640, with sizes of"
        in result.stderr
    )


def test_the_bundle_is_called_like_the_model(
    model: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for _ in range(2):  # a bundle is replaced
        result = call("build", model, "-t", "ort")
        assert result.exit_code == 0
        assert "\n  model.edgekit  " in result.stdout
        assert "ship:   edgekit verify model.edgekit" in result.stdout
    assert [path.name for path in folder.iterdir()] == ["model.edgekit"]


def test_what_is_no_bundle_is_not_replaced(model: Path, call: Call) -> None:
    other = model.with_name("other.onnx")
    other.write_bytes(b"another model")
    result = call("build", model, "-t", "ort", "-o", other)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {other} exists and is not a bundle; give another name, or remove it first\n"
        "  nothing was written\n"
    )
    assert other.read_bytes() == b"another model"


def test_an_empty_file_may_be_replaced(model: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "made").touch()  # as mktemp makes it
    assert call("build", model, "-t", "ort", "-o", tmp_path / "made").exit_code == 0


def test_samples_below_a_folder(model: Path, call: Call, tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / "photos" / str(number)
        folder.mkdir(parents=True)
        np.save(folder / "x.npy", np.full((1, 3, 16, 16), number / 4, np.float32))
    given = ["build", model, "-t", "ort", "-o", tmp_path / "m.edgekit", "--samples", tmp_path / "photos"]
    assert "to search folders, add --recursive" in call(*given).stderr
    assert answer(call(*given, "--recursive", "--json"))["manifest"]["samples"]["origin"] == "3 files"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "error: --recursive needs --samples FOLDER\n"),
        (
            ["--samples", "a*.npy"],
            "error: a*.npy is not a folder; --recursive needs --samples FOLDER\n",
        ),
    ],
)
def test_recursive_needs_a_folder(model: Path, call: Call, given: list[str], message: str) -> None:
    result = call("build", model, "-t", "ort", "-o", model.with_suffix(".edgekit"), "--recursive", *given)
    assert result.exit_code == 2
    assert message in result.stderr


def test_samples_without_an_answer_are_refused(model: Path, call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "nan.npy", np.full((1, 3, 16, 16), np.nan, np.float32))
    result = call("build", model, "-t", "ort", "--samples", tmp_path / "*.npy", "-o", tmp_path / "x.edgekit")
    assert result.exit_code == 2
    assert "1 file: the source model's outputs are all NaN" in result.stderr
    assert not (tmp_path / "x.edgekit").exists()

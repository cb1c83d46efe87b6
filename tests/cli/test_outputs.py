"""Outputs that would replace what the user still needs are refused before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command_line import Call

FILES = ("m.onnx", "a.edgekit", "key.pem", "photo.jpg", "cascade.toml", "rows.jsonl")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).write_text(f"what was in {name}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "model shrink m.onnx --flops -20% --samples . -o ./m.onnx",
            "m.onnx is given as MODEL and as -o; give another name for the model",
        ),
        (
            "model distil t.onnx --student m.onnx --epochs 1 --samples . -o m.onnx",
            "m.onnx is given as -o and as --student; give another name for the model",
        ),
        (
            "model import m.onnx -o m.onnx",
            "m.onnx is given as MODEL and as -o; give another name for the model",
        ),
        (
            "model card m.onnx --overwrite -o m.onnx",
            "m.onnx is given as MODEL and as -o; give another name for the card",
        ),
        (
            "build m.onnx -t ort -o page.html --report page.html",
            "page.html is given as -o and as --report; give another name for the bundle",
        ),
        (
            "bundle defer a.edgekit --disagreement 1% --samples . -o a.edgekit",
            "a.edgekit is given as SMALL and as -o; give another name for the bundle",
        ),
        (
            "release sign a.edgekit --private-key key.pem -o key.pem",
            "key.pem is given as --private-key and as -o; give another name for the signature",
        ),
        (
            "run a.edgekit -i x=photo.jpg --draw photo.jpg",
            "photo.jpg is given as -i and as --draw; give another name for the picture",
        ),
        (
            "bundle cascade cascade.toml -o m.onnx",
            "m.onnx exists and is not a bundle; give another name, or remove it",
        ),
        (
            "bundle defer a.edgekit --disagreement 1% --samples . -o m.onnx",
            "m.onnx exists and is not a bundle; give another name, or remove it",
        ),
    ],
)
def test_it_is_refused(words: str, said: str, folder: Path, call: Call) -> None:
    result = call(*words.split())
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {said}")
    assert all((folder / name).read_text() == f"what was in {name}" for name in FILES)

"""TFLite's metadata, as the importer carries it over; it comes from a file, so anything may be in it."""

from __future__ import annotations

import json

import pytest

from edgekit.compiler.card_inference.labels import names_in
from edgekit.compiler.card_inference.tflite_metadata import (
    FILE,
    METADATA,
    InputMetadata,
    input_metadata,
    output_labels,
    ultralytics_in,
)

SAID = {
    METADATA: json.dumps(
        {
            "inputs": {
                "x": {
                    "steps": [{"type": "normalization", "mean": [127.5], "std": [127.5]}],
                    "content": {"type": "image", "color_space": "RGB"},
                }
            },
            "outputs": {"y": {"files": [{"name": "labels.txt", "type": "TENSOR_AXIS_LABELS"}]}},
        }
    ),
    f"{FILE}labels.txt": "cat\ndog\n",
}


def test_what_it_says() -> None:
    assert input_metadata(SAID, "x") == InputMetadata((127.5,), (127.5,), "RGB")
    assert output_labels(SAID, "y") == ("cat", "dog")


def test_what_it_does_not_say() -> None:
    assert input_metadata(SAID, "other") == input_metadata({}, "x") == InputMetadata(None, None, None)
    assert output_labels(SAID, "other") == output_labels({METADATA: SAID[METADATA]}, "y") == ()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 5000,
        '{"inputs": [], "outputs": 3}',
        '{"inputs": {"x": []}, "outputs": {"y": {"files": "labels.txt"}}}',
        '{"inputs": {"x": {"steps": [3, {"type": "normalization", "mean": "no"}], "content": 1}}}',
        '{"inputs": {"x": {"steps": [{"type": "normalization", "mean": [0], "std": [0]}]}}}',
        '{"inputs": {"x": {"content": {"color_space": []}}}, "outputs": {"y": {"files": [1, {}]}}}',
    ],
)
def test_hostile_metadata_says_nothing(content: str) -> None:
    metadata = {METADATA: content, f"{FILE}labels.txt": "a"}
    assert input_metadata(metadata, "x") == InputMetadata(None, None, None)
    assert output_labels(metadata, "y") == ()


NAMES = {"author": "Ultralytics", "task": "detect", "names": {0: "cat", 1: "dog"}, "imgsz": [64, 64]}


@pytest.mark.parametrize(
    ("file", "text"), [("temp_meta.txt", str(NAMES)), ("metadata.json", json.dumps(NAMES))]
)
def test_ultralytics_metadata_in_a_tflite_file(file: str, text: str) -> None:
    found = ultralytics_in({f"{FILE}{file}": text})
    assert (found["author"], found["task"], found["imgsz"]) == ("Ultralytics", "detect", "[64, 64]")
    named = names_in(found)
    assert named is not None
    assert named[0] == ("cat", "dog")


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 5000, "{'author': 'other'}", "__import__('os')", "3", "x" * 200_000]
)
def test_other_files_are_no_metadata_of_ultralytics(text: str) -> None:
    assert (
        ultralytics_in({f"{FILE}metadata.txt": text, f"{FILE}metadata.json": text, "author": "Ultralytics"})
        == {}
    )

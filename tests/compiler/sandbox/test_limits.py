"""The limits follow from the model and the options, and so does what a child may read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.sandbox import limits
from edgekit.compiler.sandbox.limits import BYTES_BEYOND, TIMES_MODEL, bounds_of, limits_of, model_files
from edgekit.system import confinement
from edgekit.system.cache_folder import cache_folder
from edgekit.system.records_folder import model_folder

SMALL = 1000
SIZES = st.integers(0, 1 << 36)


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (limits.MEMORY_MB, limits.SECONDS):
        monkeypatch.delenv(name, raising=False)


def given(path: Path, **options: Any) -> dict[str, Any]:
    return {"model": path, "targets": ["ort"], "precision": "fp32", **options}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(SMALL))
    return path


def test_memory_grows_with_the_model(model: Path) -> None:
    assert limits_of("build", given(model)).memory_bytes == BYTES_BEYOND + TIMES_MODEL * SMALL
    shapes = {"x": (1, 3, 960, 960)}
    assert limits_of("build", given(model, shapes=shapes)).memory_bytes == (
        BYTES_BEYOND + TIMES_MODEL * SMALL + 100 * 4 * 3 * 960 * 960
    )
    samples = [{"x": np.zeros(1000, np.float32)}] * 3
    assert limits_of("build", given(model, samples=samples)).memory_bytes == (
        BYTES_BEYOND + TIMES_MODEL * SMALL + 2 * 12_000
    )


def test_adapters_are_read_and_have_memory(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "adapter.gguf"
    other.parent.mkdir()
    other.write_bytes(bytes(500))
    options = given(model, adapters={"one": str(other)})
    assert limits_of("build", options).memory_bytes == BYTES_BEYOND + TIMES_MODEL * (SMALL + 500)
    assert os.path.realpath(other) in bounds_of(limits_of("build", options), options, tmp_path).reads
    assert other in model_files(options)


def test_the_machine_bounds_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 8 GB a limit is at most 7 GB, also one that a build claims; the variable may say more."""
    monkeypatch.setattr(limits, "all_memory_bytes", lambda: 8_000_000_000)
    most = 7_000_000_000
    ours = limits_of("build", given(model, distil="20min", shrink="auto"))
    assert (ours.memory_bytes, ours.most_memory_bytes) == (most, most)
    small = limits_of("build", given(model))
    assert (small.memory_bytes, small.most_memory_bytes) == (BYTES_BEYOND + TIMES_MODEL * SMALL, most)
    bounds = bounds_of(small, given(model), model.parent)
    assert bounds.most_data_bytes is not None
    assert bounds.data_bytes is not None
    assert bounds.most_data_bytes - bounds.data_bytes == most - small.memory_bytes
    monkeypatch.setenv(limits.MEMORY_MB, "9000")
    given_by_user = limits_of("build", given(model))
    assert (given_by_user.memory_bytes, given_by_user.most_memory_bytes) == (9_000_000_000, 9_000_000_000)


def test_a_board_has_the_least(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "all_memory_bytes", lambda: 500_000_000)
    assert limits_of("build", given(model)).memory_bytes == BYTES_BEYOND


@given_by_hypothesis(SIZES, SIZES, st.integers(1, 1 << 44))
def test_a_larger_model_never_has_less(size: int, more: int, machine: int) -> None:
    """And never more than the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "all_memory_bytes", lambda: machine)
        patch.setattr(limits, "_size_bytes", lambda path: size if path.name == "a.onnx" else size + more)
        one, other = (limits_of("build", given(Path(name))) for name in ("a.onnx", "b.onnx"))
    assert one.memory_bytes <= other.memory_bytes <= max(machine, BYTES_BEYOND)


def test_external_data_is_of_the_model(tmp_path: Path) -> None:
    """Each file once; what is no plain file beside the model has no size."""
    tensors = [numpy_helper.from_array(np.zeros(4, np.float32), f"w{index}") for index in range(4)]
    for tensor, place in zip(tensors, ("weights.bin", "weights.bin", "../far.bin", "link.bin"), strict=True):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)
    graph = helper.make_graph([], "g", [], [], tensors)
    path = tmp_path / "inner" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(helper.make_model(graph).SerializeToString())
    for name in ("inner/weights.bin", "far.bin"):
        (tmp_path / name).write_bytes(bytes(1_000_000))
    (tmp_path / "inner" / "link.bin").symlink_to(tmp_path / "far.bin")
    size = 1_000_000 + path.stat().st_size
    assert limits_of("check", given(path)).memory_bytes == BYTES_BEYOND + TIMES_MODEL * size
    assert onnx.load(path, load_external_data=False).graph.initializer


def test_time_grows_with_targets_and_the_budget(model: Path) -> None:
    check = limits_of("check", given(model)).seconds
    one = limits_of("build", given(model)).seconds
    two = limits_of("build", given(model, targets=["ort", "tflite"])).seconds
    searched = limits_of("build", given(model, precision="int8", time_budget=1000)).seconds
    assert check == one == 301
    assert two == 601
    assert searched == 301 + 4000
    assert limits_of("build", given(model, precision="auto")).seconds == 301 + 720


def test_a_build_raises_its_time_limit_up_to_a_maximum(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own limit is not raised."""
    assert limits_of("build", given(model)).most_seconds == limits.MOST_SECONDS
    longer = limits_of("build", given(model, distil="200min"))
    assert longer.most_seconds == longer.seconds > limits.MOST_SECONDS
    monkeypatch.setenv(limits.SECONDS, "90")
    own = limits_of("build", given(model))
    assert (own.seconds, own.most_seconds) == (90, 90)


def test_a_framework_needs_more(tmp_path: Path, model: Path) -> None:
    other = tmp_path / "model.pt2"
    other.write_bytes(bytes(SMALL))
    ours, theirs = (limits_of("build", given(path)) for path in (model, other))
    assert theirs.memory_bytes - ours.memory_bytes == limits.FRAMEWORK_BYTES
    assert theirs.seconds - ours.seconds == limits.FRAMEWORK_SECONDS


@pytest.mark.parametrize("verb", ["check", "build"])
def test_what_is_no_model_has_the_least(tmp_path: Path, verb: str) -> None:
    for name in ("absent.onnx", "folder.onnx", "pipe.onnx"):
        path = tmp_path / name
        if name.startswith("folder"):
            path.mkdir()
        if name.startswith("pipe"):
            os.mkfifo(path)
        assert limits_of(verb, given(path, shapes={"x": ("a", None)})).memory_bytes == BYTES_BEYOND


def test_files_beside_the_folder_onnx_may_be_read(tmp_path: Path, model: Path) -> None:
    """``config.json`` of a Hugging Face folder is beside it."""
    for name, allowed in (("onnx", True), ("other", False)):
        path = tmp_path / name / "model" / name / "model.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(model.read_bytes())
        reads = bounds_of(limits_of("card", given(path)), given(path), tmp_path / "own").reads
        assert (str(path.parent.parent) in reads) == allowed


def test_only_what_is_named_is_read(tmp_path: Path, model: Path) -> None:
    data, pictures = tmp_path / "data", tmp_path / "far" / "pictures"
    for folder in (data, pictures):
        folder.mkdir(parents=True)
    (pictures / "a.png").write_bytes(b"")
    (data / "a.png").symlink_to(pictures / "a.png")
    options = given(model, samples=str(data / "*.png"), card=tmp_path / "cards" / "card.toml")
    records = model_folder(model_files(options))
    bounds = bounds_of(limits_of("build", options), options, tmp_path / "own", records)
    assert {str(tmp_path), str(data), str(pictures), str(tmp_path / "cards")} <= set(bounds.reads)
    assert [path for path in bounds.writes if not path.startswith("/dev/")] == [
        str(tmp_path / "own"),
        str(records),
    ]


WRITES = """
import json, sys
from edgekit.system.confinement import Bounds, confine
bounds, paths = json.loads(sys.argv[1])
confine(Bounds(*bounds))
for path in paths:
    try:
        open(path, "w").close()
        print("written")
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a process out of folders")
def test_a_child_writes_records_of_its_own_model_alone(tmp_path: Path, model: Path) -> None:
    if why := confinement.effective_limits().get("files"):
        pytest.skip(why)
    (tmp_path / "other.onnx").write_bytes(b"another model")
    own, other = (model_folder([path]) for path in (model, tmp_path / "other.onnx"))
    assert own is not None
    assert other is not None
    folders = [own, other, cache_folder() / "timings", cache_folder() / "imports"]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    bounds = bounds_of(limits_of("build", given(model)), given(model), tmp_path / "own", own)
    request = json.dumps([bounds, [str(folder / "a.json") for folder in folders]])
    done = subprocess.run([sys.executable, "-c", WRITES, request], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["written", "refused", "refused", "refused"]


@pytest.mark.parametrize("pattern", ["", "*.jpg", "**/*.jpg"])
def test_labels_beside_samples_may_be_read(tmp_path: Path, model: Path, pattern: str) -> None:
    """YOLO's layout, images/ and labels/, as a folder and as globs; links among the labels are followed."""
    images, elsewhere = tmp_path / "set" / "images", tmp_path / "elsewhere"
    for folder in (images, tmp_path / "set" / "labels", elsewhere):
        folder.mkdir(parents=True)
    (elsewhere / "1.txt").write_text("0 .5 .5 1 1", "utf-8")
    (tmp_path / "set" / "labels" / "1.txt").symlink_to(elsewhere / "1.txt")
    options = given(model, samples=str(images / pattern) if pattern else str(images))
    reads = bounds_of(limits_of("build", options), options, tmp_path / "own").reads
    assert {str(images), str(tmp_path / "set" / "labels"), str(elsewhere)} <= set(reads)
    assert str(tmp_path / "set") not in reads

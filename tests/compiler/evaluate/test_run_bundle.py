from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.bundle import Bundle
from edgekit.compiler.evaluate.run_bundle import RunResult, check_output, run_files, save_npz
from edgekit.errors import SampleError, UsageError
from edgekit.processing.predictions.classify import Classes
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, small_manifest, variant
from tests.fixtures.fake_engines import Engines

ACTIVE = {"variant": "ort-fp32", "engine": "Ort 1.0", "device": "CPU", "precision": "fp32"}


def result(array: Array) -> RunResult:
    return RunResult({"y": array}, None, ACTIVE, ())


@pytest.mark.parametrize(
    ("values", "limits", "text"),
    [
        ([1.0, 3.0], {"min": 1.0, "max": 3.0, "not_finite": 0}, "float64 2  1 to 3"),
        (
            [1.0, np.nan, -np.inf],
            {"min": 1.0, "max": 1.0, "not_finite": 2},
            "float64 3  1 to 1, 2 not finite",
        ),
        ([np.nan], {"min": None, "max": None, "not_finite": 1}, "float64 1  1 not finite"),
        ([], {"min": None, "max": None, "not_finite": 0}, "float64 0  empty"),
    ],
)
def test_limits_are_over_what_is_finite(values: list[float], limits: dict[str, object], text: str) -> None:
    found = result(np.array(values))
    assert found.as_json()["outputs"]["y"] == {"dtype": "float64", "shape": [len(values)], **limits}
    assert found.text().splitlines() == [
        "  ran       ort-fp32 on Ort 1.0, CPU, fp32",
        f"  output    y  {text}",
    ]


def test_the_answer_comes_first_and_is_an_object_in_json() -> None:
    classes = Classes(np.array([1]), np.array([0.75], np.float32), ("dog", "cat"))
    found = RunResult({"y": np.zeros(1)}, classes, ACTIVE, ())
    assert found.text().splitlines() == [
        "  cat  0.750",
        "",
        "  ran       ort-fp32 on Ort 1.0, CPU, fp32",
        "  output    y  float64 1  0 to 0",
    ]
    assert found.as_json()["answer"] == classes.as_json()
    assert result(np.zeros(1)).as_json()["answer"] is None


def test_outputs_of_any_name_are_saved_whole(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3), "allow_pickle": np.array(True), "a/b": np.zeros((2, 0), np.float16)}
    for name in ("one.npz", "two.npz"):
        save_npz(tmp_path / name, arrays)
    with np.load(tmp_path / "one.npz", allow_pickle=False) as found:
        assert sorted(found.files) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_outputs_that_cannot_be_saved_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "out.npz"
    with pytest.raises(UsageError) as error:
        save_npz(path, {"y": X})
    assert str(error.value) == f"can't write {path}: No such file or directory; choose another path"


def test_inputs_are_read_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort"))
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "other.npz", z=X)
    for name in ("x", ""):  # without a name it is the only input's
        found = run_files(small_bundle(), {name: tmp_path / "x.npy"})
        np.testing.assert_array_equal(found.outputs["y"], 2 * X)
    with pytest.raises(UsageError) as error:
        run_files(small_bundle(), {"x": tmp_path / "other.npz"})
    assert str(error.value) == f"{tmp_path / 'other.npz'} has no array named x"


def test_an_input_that_is_no_number_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integer variants answer it as if it were one."""
    engines, bundle = Engines("ort"), small_bundle()
    engines["ort"].behaviour[bundle.variants[0].name] = lambda feeds: {"y": 2 * X}
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    bad = X.copy()
    bad[0, 0] = np.nan
    np.save(tmp_path / "x.npy", bad)
    found = run_files(bundle, {"": tmp_path / "x.npy"})
    warning = f"input x contains NaN or infinities in 1 of {X.size} values"
    assert found.as_json()["warnings"] == [warning]
    assert found.text().splitlines()[-1] == f"  warning   {warning}"
    np.save(tmp_path / "x.npy", X)
    assert run_files(bundle, {"": tmp_path / "x.npy"}).warnings == ()


def test_a_variant_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort"))
    np.save(tmp_path / "x.npy", X)
    bundle = small_bundle([variant("a", "ort", p50_ms=1.0), variant("b", "ort", p50_ms=2.0)])
    assert run_files(bundle, {"x": tmp_path / "x.npy"}).active["variant"] == "a"
    assert run_files(bundle, {"x": tmp_path / "x.npy"}, variant="b").active["variant"] == "b"


def test_a_picture_without_a_card_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "street.jpg"
    path.write_bytes(b"")
    with pytest.raises(UsageError) as error:
        run_files(small_bundle(), {"": path})
    assert str(error.value) == (
        f"{path} is a picture, but new bundle has no card that describes its preparation; build it with "
        "--card card.toml (edgekit model card MODEL -o card.toml drafts one), or pass arrays (.npy, .npz)"
    )


def test_a_picture_without_a_task_gives_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card may say how a picture becomes an input, and nothing of the outputs."""
    seen: list[Array] = []

    def kept(feeds: Mapping[str, Array]) -> dict[str, Array]:
        seen.append(feeds["x"])
        return {"y": feeds["x"].reshape(1, 6)}

    engines = Engines("ort")
    engines["ort"].behaviour["ort-fp32"] = kept
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    image = {"kind": "image", "shape": [1, 3, 1, 2], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    manifest = {
        **small_manifest(),
        "card": {"title": "c", "inputs": {"x": image}},
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 3, 1, 2]}],
        "golden": [],
    }
    bundle = Bundle.create(manifest, {"variants/ort-fp32/model.bin": b"ort-fp32"})
    Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)).save(tmp_path / "a.png")
    found = run_files(bundle, {"x": tmp_path / "a.png"})
    np.testing.assert_array_equal(seen[0].reshape(-1), [1, 4, 2, 5, 3, 6])
    assert found.answer is None
    np.testing.assert_array_equal(found.outputs["y"], [[1, 4, 2, 5, 3, 6]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no file was given for x float32 1x6; add -i x=FILE"),
        ({"y": "a.npy"}, "the model has no input y; its inputs are x float32 1x6"),
        ({"": "a.npy", "x": "b.npy"}, "which input is a.npy for? Write -i NAME=a.npy, with one of x"),
    ],
)
def test_files_are_given_by_input(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        run_files(small_bundle(), {name: Path(path) for name, path in given.items()})
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["out.csv", "out", "out.npz.txt"])
def test_outputs_are_refused_in_formats_that_they_are_not_written_in(name: str) -> None:
    with pytest.raises(UsageError) as error:
        check_output(Path(name))
    stem = name.rpartition(".")[0] or name
    assert str(error.value) == f"outputs are arrays, written as .npz: use -o {stem}.npz"
    check_output(Path("a/b.NPZ"))


@pytest.mark.parametrize(
    ("name", "why"), [("nowhere.jpg", "file not found"), ("folder", "is a folder; pass a file")]
)
def test_an_input_that_is_not_a_file(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SampleError) as error:
        run_files(small_bundle(), {"": tmp_path / name})
    assert str(error.value) == f"{tmp_path / name}: {why}"

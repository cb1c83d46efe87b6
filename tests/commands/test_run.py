from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.cards.predictions import Classes
from edgekit.commands.run import RunResult, run_files, save_npz
from edgekit.errors import UsageError
from edgekit.tensors import Array
from tests.fixtures.bundles import X, small_bundle
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
    options = {"engine": None, "threads": None, "strict": False}
    found = run_files(small_bundle(), {"x": tmp_path / "x.npy"}, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.outputs["y"], 2 * X)
    with pytest.raises(UsageError) as error:
        run_files(small_bundle(), {"x": tmp_path / "other.npz"}, **options)  # type: ignore[arg-type]
    assert str(error.value) == f"{tmp_path / 'other.npz'} has no array named x"

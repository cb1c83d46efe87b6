from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 16, 16), np.float32))
    return tmp_path / "x.npy"


def test_run_refuses_a_format_that_it_does_not_write_before_anything_runs(bundle: Path, call: Call) -> None:
    result = call("run", bundle, "-i", "image=absent.npy", "-o", "out.jpg")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: outputs are arrays, written as .npz: use -o out.npz; --draw out.jpg draws the answer\n"
    )


def test_the_only_input_needs_no_name(bundle: Path, call: Call, array: Path) -> None:
    assert call("run", bundle, "-i", array).exit_code == 0
    twice = call("run", bundle, "-i", array, "-i", array)
    assert twice.stderr == "error: -i is given more than once; say which input each is for\n"


@pytest.mark.parametrize("given", ["=x.npy", "image=", ""])
def test_what_names_no_file_is_refused(bundle: Path, call: Call, given: str) -> None:
    result = call("run", bundle, "-i", given)
    assert result.exit_code == 2
    assert f"'-i' / '--input': {given!r} is not of the form [NAME=]FILE" in result.stderr


@pytest.mark.parametrize("verb", [["run", "-i", "image=ARRAY"], ["bench", "--seconds", "0.01"], ["explain"]])
def test_a_variant_is_named(bundle: Path, call: Call, array: Path, verb: list[str]) -> None:
    name, *options = (word.replace("ARRAY", str(array)) for word in verb)
    found = answer(call(name, bundle, *options, "--variant", "ort-fp32", "--json"))
    ran = found["active"] if "active" in found else found.get("results", found.get("variants"))[0]
    assert ran["variant"] == "ort-fp32"
    wrong = call(name, bundle, *options, "--variant", "ort-int8")
    assert wrong.exit_code == 2
    assert "variant 'ort-int8'" in wrong.stderr
    assert "ort-fp32" in wrong.stderr


def test_explain_takes_a_target_or_a_variant(bundle: Path, call: Call) -> None:
    result = call("explain", bundle, "ort", "--variant", "ort-fp32")
    assert (result.exit_code, result.stderr) == (2, "error: give ort or --variant ort-fp32, not both\n")
    result = call("explain", bundle, "--variant", "ort")
    assert result.stderr == "error: unknown variant 'ort'; available: ort-fp32\n"

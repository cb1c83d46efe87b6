from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import models
from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


def test_check_says_what_it_assumed(tmp_path: Path, call: Call) -> None:
    path = models.write(tmp_path, models.DYNAMIC)
    result = call("check", path, "-t", "ort")
    assert result.exit_code == 0
    assert "  note: open in the model and set here: batch 1 of image; to set" in result.stdout
    found = answer(call("check", path, "-t", "ort", "--json"))
    assert (found["ok"], [f["code"] for f in found["findings"]]) == (True, ["EK1107"])


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

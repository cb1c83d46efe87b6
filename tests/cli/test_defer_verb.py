from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.classifiers import classifiers, vectors
from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("defer")
    classifiers(folder)
    for number, sample in enumerate(vectors(200)):
        np.save(folder / f"{number}.npy", sample["x"])
    return folder


def test_verb(folder: Path, call: Call) -> None:
    output = folder / "both.edgekit"
    done = call(
        "bundle", "defer", folder / "small.edgekit", folder / "large.edgekit", "--disagreement", "5%",
        "--samples", folder / "*.npy", "-o", output, "--json",
    )  # fmt: skip
    found = answer(done)
    assert done.exit_code == 0
    assert found["bundle"] == str(output)
    assert (found["small"], found["large"], found["samples"]) == ("small-ort-fp32", "ort-fp32", 200)
    assert found["bound"] <= 0.05
    assert found["expected_ms"] == pytest.approx(found["small_ms"] + found["deferred"] * found["large_ms"])
    assert (
        answer(call("run", output, "-i", f"x={folder / '0.npy'}", "--json"))["active"]["variant"]
        == "ort-deferral"
    )


def test_nothing_is_written_without_a_gain(folder: Path, call: Call) -> None:
    output = folder / "none.edgekit"
    done = call(
        "bundle", "defer", folder / "small.edgekit", folder / "large.edgekit", "--disagreement", "60%",
        "--samples", folder / "*.npy", "-o", output,
    )  # fmt: skip
    assert done.exit_code == 1
    assert "  answers   small-ort-fp32; ort-fp32 nowhere\n" in done.stdout
    assert "small-ort-fp32 alone is within the bound: use it without a deferral" in done.stdout
    assert "nothing was written" in done.stdout
    assert not output.exists()


def test_too_few_samples(folder: Path, call: Call) -> None:
    done = call(
        "bundle", "defer", folder / "small.edgekit", folder / "large.edgekit", "--disagreement", "1%",
        "--samples", folder / "*.npy", "-o", folder / "none.edgekit",
    )  # fmt: skip
    assert done.exit_code == 2
    assert "use 299 or more, or allow more disagreement" in done.stderr
    assert "nothing was written" in done.stderr

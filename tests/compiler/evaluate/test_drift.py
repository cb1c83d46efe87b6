from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import edgekit
from edgekit.cli import main
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drift")
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    model = write(folder, COLOUR_FINDER, "finder.onnx")
    edgekit.build(model, targets=["ort"], card=folder / "card.toml").save(folder / "finder.edgekit")
    return folder / "finder.edgekit"


def pictures(folder: Path, brightness: int, count: int = 6) -> Path:
    folder.mkdir()
    random = np.random.default_rng(brightness)
    for number in range(count):
        levels = np.clip(random.normal(brightness, 20, (40, 60, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(levels).save(folder / f"{number}.png")
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_darker_pictures_are_seen_in_the_figures(tmp_path: Path, bundle: Path) -> None:
    base, new = pictures(tmp_path / "base", 160), pictures(tmp_path / "new", 40, 4)
    command = ["bundle", "drift", str(bundle), str(base), str(new), "-o", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == {"reference": 6, "current": 4}
    reference, current = (rows(tmp_path / "out" / f"{name}.csv") for name in ("reference", "current"))
    assert [row["file"] for row in reference] == [f"{number}.png" for number in range(6)]
    assert list(reference[0]) == list(current[0])
    name = next(name for name in reference[0] if name.startswith("input") and name.endswith("mean"))
    before, after = (np.mean([float(row[name]) for row in each]) for each in (reference, current))
    assert after < before / 2
    assert {"found", "best label", "best score", "mean score"} <= set(reference[0])


def test_a_limit_and_the_text(tmp_path: Path, bundle: Path) -> None:
    base = pictures(tmp_path / "base", 160)
    command = [
        "bundle",
        "drift",
        str(bundle),
        str(base),
        str(base),
        "-o",
        str(tmp_path / "out"),
        "--limit",
        "3",
    ]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.stderr
    assert "3 and 3 samples, ort-fp32" in done.stdout
    assert "+0.0" in done.stdout
    assert len(rows(tmp_path / "out" / "current.csv")) == 3


def test_without_samples_nothing_is_written(tmp_path: Path, bundle: Path) -> None:
    base = pictures(tmp_path / "base", 160, 1)
    (tmp_path / "empty").mkdir()
    command = [
        "bundle",
        "drift",
        str(bundle),
        str(base),
        str(tmp_path / "empty"),
        "-o",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "nothing was written" in done.stderr
    assert not (tmp_path / "out").exists()


def test_arrays_and_pictures_are_not_compared(tmp_path: Path, bundle: Path) -> None:
    base = pictures(tmp_path / "base", 160, 1)
    with edgekit.Bundle.open(bundle) as opened:
        spec = opened.inputs[0]
    np.save(tmp_path / "one.npy", np.zeros(spec.shape, spec.dtype))
    command = [
        "bundle",
        "drift",
        str(bundle),
        str(base),
        str(tmp_path / "one.npy"),
        "-o",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "of different kinds" in done.stderr) == (2, True)

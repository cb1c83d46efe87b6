"""Ten short programs as people write them by habit: each runs, and a type checker finds nothing in them."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

import edgekit
from tests.docs.documents import ROOT
from tests.fixtures import models
from tests.fixtures.chat_bundles import chat_bundle

PROGRAMS = sorted((Path(__file__).parent / "habits").glob("*.py"))
PRINTED = {
    "build_and_predict": "green True (",
    "build_from_arrays": "24 samples given\n1 samples given",
    "draft_a_card": "dict_keys(['image'])\nTrue []",
    "draw_boxes": "1 green",
    "inspect_bundle": "['ort-fp32']\nTrue\n['model-ort-fp32.onnx']",
    "measure": "ort-fp32 True\n  variant",
    "predict_anything": "6 True\nTrue",
    "run_arrays": "{'boxes': (1, 1, 4), 'scores': (1, 1, 3)}\nONNX ()",
    "watch_progress": "['opened', 'checked', 'reference', 'compiled', 'timed']",
    "write_text": "4 length\nTrue\n2",
}
pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the programs find: a detector of colours, its card, photos and bundle, and a language model."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("habits")
    model = models.write(folder, models.COLOUR_FINDER)
    (folder / "card.toml").write_text(models.COLOUR_CARD, "utf-8")
    (folder / "photos").mkdir()
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :, 1] = 240
    image.fromarray(pixels).save(folder / "photo.jpg")
    for number in range(4):
        image.fromarray(pixels + np.uint8(4 * number)).save(folder / "photos" / f"{number}.png")
    edgekit.build(model, targets="ort", card=folder / "card.toml").save(folder / "model.edgekit")
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs(
    program: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if program.stem == "write_text":
        pytest.importorskip("tokenizers")
        chat_bundle(tmp_path / "chat.edgekit")
    if program.stem == "inspect_bundle":
        pytest.importorskip("vl_convert")
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program))
    printed = capsys.readouterr()
    assert PRINTED[program.stem] in printed.out
    assert printed.err == ""


def test_there_are_ten() -> None:
    assert [program.stem for program in PROGRAMS] == sorted(PRINTED)
    assert len(PROGRAMS) == 10


@pytest.mark.needs_pyright
def test_a_type_checker_knows_all_names(tmp_path: Path) -> None:
    """It reads the paths that an editable install writes (.ci/editable_paths.py), and no import hook."""
    shutil.copytree(PROGRAMS[0].parent, tmp_path / "habits")
    venv.create(tmp_path / "venv")
    site = sysconfig.get_path("purelib", "venv", vars={"base": str(tmp_path / "venv")})
    (Path(site) / "edgekit_paths.pth").write_text(f"{ROOT}\n{ROOT / 'targets'}\n", "utf-8")
    beside = Path(np.__file__).parents[1]  # numpy and Pillow, which a user has installed too
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(beside)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    python = Path(sysconfig.get_path("scripts", "venv", vars={"base": str(tmp_path / "venv")})) / "python"
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", str(python), "habits"]
    kept = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if not path.startswith(str(ROOT))
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(kept)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    rows = json.loads(done.stdout)["generalDiagnostics"]
    assert [f"{Path(row['file']).name}: {row['message']}" for row in rows if row["severity"] == "error"] == []


def test_the_device_side_is_light(tmp_path: Path) -> None:
    """``edgekit.runtime`` and ``edgekit.Session`` load neither onnx nor click, and take less than 40 ms of a
    processor from bytecode, as pip installs it."""
    script = (
        "import sys, time, numpy; began = time.process_time()\n"
        "import edgekit, edgekit.runtime; edgekit.Session\n"
        "print(1000 * (time.process_time() - began), *({'onnx', 'click'} & sys.modules.keys()))"
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "targets")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
        ).stdout.split()
        for _ in range(6)
    ]
    assert all(len(run) == 1 for run in runs)
    assert min(float(run[0]) for run in runs) < 40
    print(f"{min(float(run[0]) for run in runs):.1f} ms")

"""The commands of the deploy pages run in their order, on a small detector, as a reader would type them.

``edgekit`` commands run in this process. Skipped are commands for another machine (``--device``) and those
for a file that no test has (``.pt``). Other programs (pip, scp) are not run.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgekit.cli import main
from tests.docs.documents import ROOT
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

PAGES = {
    "raspberry-pi.md": ("ai_edge_litert", 4),
    "deploy-android.md": ("ai_edge_litert", 3),
    "deploy-iphone.md": ("coremltools", 4),
    "jetson.md": ("onnxruntime", 6),
    "intel.md": ("openvino", 5),
    "microcontrollers.md": ("tflite_micro", 4),
}
"""Page of docs/ -> the package that its target needs, and the least number of its commands that run."""
HEADINGS = ("Build", "Read the report", "Write the app|Write the firmware", "Measure", "Not run")
"""Every page leads from a model to an app, in this order."""
PHOTOS = 12


def commands(page: str) -> list[list[str]]:
    """The words of each ``edgekit`` command in the blocks and sentences of a page that can run here."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    lines = re.findall(r"^    (edgekit .*)$", text, re.MULTILINE)
    lines += [
        line for line in re.findall(r"`(edgekit [a-z][^`]*)`", text.replace("\n", " ")) if "detector" in line
    ]
    words = [shlex.split(line, comments=True)[1:] for line in lines]
    return [each for each in words if "--device" not in each and not any(".pt" in word for word in each)]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has: a detector and photos."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("reader")
    write(
        folder, COLOUR_FINDER.replace(" image)", " images)").replace("(image)", "(images)"), "detector.onnx"
    )
    (folder / "photos").mkdir()
    with Image.open(ROOT / "docs" / "camera.jpg") as picture:
        picture.save(folder / "street.jpg")
        for number in range(PHOTOS):
            part = picture.crop((40 * number, 0, 40 * number + 200, 200))
            part.save(folder / "photos" / f"{number}.jpg")
    return folder


@pytest.mark.needs_ort
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    page: str, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, least = PAGES[page]
    pytest.importorskip(package)
    folder = tmp_path / "reader"
    shutil.copytree(given, folder)
    monkeypatch.chdir(folder)
    ran = 0
    for words in commands(page):
        if words[0] == "bench":
            words = [*words, "--seconds", "0.1"]  # that it runs is what counts here
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"edgekit {shlex.join(words)}\n{result.output}\n{result.exception}"
        if words[:2] == ["model", "card"]:  # a reader corrects what is guessed
            (folder / "card.toml").write_text(COLOUR_CARD.replace("inputs.image", "inputs.images"), "utf-8")
        ran += 1
    assert ran >= least


@pytest.mark.parametrize("page", PAGES)
def test_a_page_leads_from_a_model_to_an_app(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    headings = re.findall(r"^## (?:\d\. )?(.*)$", text, re.MULTILINE)
    places = [
        next((i for i, heading in enumerate(headings) if re.match(wanted, heading)), -1)
        for wanted in HEADINGS
    ]
    assert -1 not in places, headings
    assert places == sorted(places)

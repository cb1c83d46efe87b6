"""Calls that people write by habit, from other libraries: each works, or its error says what to write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import edgekit
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort

WORKS = """
edgekit.Session(file).active.variant == "ort-fp32"
edgekit.open(file).active.variant == "ort-fp32"
edgekit.Bundle(file).variants[0].name == "ort-fp32"
edgekit.Bundle.open(file).variants[0].name == "ort-fp32"
edgekit.Bundle(file)["ort-fp32"].target == "ort"
edgekit.bench(file, seconds=0.1, progress=False)[0]["variant"] == "ort-fp32"
edgekit.verify(file)[0].ran
str(edgekit.Bundle(file).report).startswith("  target")
edgekit.Bundle(file).report(folder / "page.html") is None
edgekit.Bundle(file).export("ort-fp32", folder / "out")[0].suffix == ".onnx"
len(edgekit.build(model, targets="ort", card=card).variants) == 1
len(edgekit.build(model, targets=["ort"], card=edgekit.draft_card(model)).variants) == 1
len(edgekit.build(model, targets="ort", samples=np.zeros((1, 3, 32, 32), np.float32)).variants) == 1
len(edgekit.check(model, "ort")) >= 0
edgekit.open(file)(photo).draw(photo).size == (64, 48)
edgekit.open(file).predict(str(photo)).draw(photo).size == (64, 48)
edgekit.open(file).predict(Image.open(photo))[0].label == "green"
edgekit.open(file).predict(photo.read_bytes())[0].label == "green"
edgekit.open(file).predict(photo)._repr_html_().startswith("<table")
edgekit.open(file)._repr_html_().startswith("<table")
""".strip().splitlines()
SAYS = {
    "edgekit.load(file)": "did you mean 'open'?",
    "edgekit.inspect(file)": "print(edgekit.Bundle(path).report)",
    "edgekit.runtime.load(file)": "did you mean 'Session'?",
    "edgekit.predict(photo)": "edgekit.open(path).predict(image) predicts",
    "edgekit.targets()": "edgekit.find_profile(name) describes a target",
    "edgekit.convert(model)": "did you mean 'build'?",
    "edgekit.quantize(model)": "edgekit.build(model, targets=..., precision='int8', samples=...) quantizes",
    "edgekit.build(model, target='ort')": "did you mean 'targets'?",
    "edgekit.build(model, 'ort')": "build() too many positional arguments: write targets=...",
    "edgekit.build(model, targets='ort', output='m')": "it returns the bundle, which save(path) writes",
    "edgekit.build(model, targets='onnxruntime')": "unknown target 'onnxruntime'; did you mean ort?",
    "edgekit.build(model, targets='ort', quantize=True)": "did you mean 'precision'?",
    "edgekit.build(model, targets='ort', precision='int8', card=card)": "add samples with 64 to 128",
    "edgekit.Bundle(file).session()": "edgekit.open(bundle) opens one",
    "edgekit.Bundle(file).bench()": "edgekit.bench(bundle) times it",
    "edgekit.Bundle(file).variants[0].export('out')": "bundle.export(name, folder) writes its files",
    "edgekit.Bundle(file).targets": "{variant.target for variant in bundle.variants} are its targets",
    "edgekit.build(model, targets='ort', samples=photo)": "in Python edgekit.draft_card",
    "edgekit.open(file).predict(photo, conf=0.5)": "has no option conf; did you mean 'score'?",
    "edgekit.open(file).stream('street.mp4')": "read them, e.g. with cv2.VideoCapture",
    "edgekit.open(file).predict([photo, photo])": "[session.predict(item) for item in items]",
    "edgekit.open(file).predict('https://host/cat.jpg')": "predict opens no network: download it first",
    "edgekit.open(file).predict(photo).plot()": "draw(image) returns the image with it",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The variables of the calls: a detector of colours, its card, a photo and its bundle."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("calls")
    model, card, file = models.write(folder, models.COLOUR_FINDER), folder / "card.toml", folder / "m.edgekit"
    card.write_text(models.COLOUR_CARD, "utf-8")
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :, 1] = 240
    image.fromarray(pixels).save(folder / "photo.png")
    edgekit.build(model, targets="ort", card=card).save(file)
    return {
        "edgekit": edgekit, "np": np, "Image": image, "model": model, "card": card, "file": file,
        "photo": folder / "photo.png", "folder": folder,
    }  # fmt: skip


@pytest.mark.parametrize("call", WORKS)
def test_a_call_by_habit_works(call: str, names: dict[str, Any]) -> None:
    if ".report(folder" in call:
        pytest.importorskip("vl_convert")
    assert eval(call, names) is True


@pytest.mark.parametrize("call", SAYS)
def test_a_call_that_cannot_work_says_what_to_write(call: str, names: dict[str, Any]) -> None:
    with pytest.raises((AttributeError, TypeError, edgekit.EdgeKitError)) as error:
        eval(call, names)
    assert SAYS[call] in str(error.value)


def test_there_are_43() -> None:
    assert len(WORKS) + len(SAYS) == 43

"""A cascade, run as one session: what the first model finds, the others look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.errors import BundleError, EngineError, UsageError
from edgekit.processing.predictions.cascaded import Cascaded
from edgekit.runtime import Session
from edgekit.runtime.session_chain import SessionChain
from tests.fixtures.cascades import quarters, stages

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cascade")
    return edgekit.build_cascade(stages(folder)).save(folder / "cascade.edgekit")


def test_each_thing_is_looked_at(bundle: Path) -> None:
    with Session(bundle) as session:
        found = session.predict(quarters())
        assert isinstance(found, Cascaded)
        said = {tuple(thing.box): details["colour"][0].label for thing, details in found}
        assert said == {(0, 0, 20, 10): "red", (0, 10, 20, 20): "green", (20, 10, 40, 20): "blue"}
        assert str(found).splitlines()[0] == "part  1.000  0,0 to 20,10  colour: red 1.000"
        assert found.as_json()[1]["details"]["colour"][0]["label"] == "blue"
        assert session.stages["colour"].active.variant == "ort-fp32"


def test_the_frames_order_reaches_every_stage(bundle: Path) -> None:
    with Session(bundle) as session:
        found = session.predict(quarters()[:, :, ::-1], order="bgr")
        assert [details["colour"][0].label for _, details in found] == ["red", "blue", "green"]


def test_options_are_the_first_stages(bundle: Path) -> None:
    with Session(bundle) as session:
        assert len(session.predict(quarters(), score=0.9)) == 1


def test_nothing_found_is_an_answer(bundle: Path) -> None:
    with Session(bundle) as session:
        found = session.predict(np.zeros((20, 40, 3), np.uint8))
        assert (len(found), str(found), found.as_json()) == (0, "nothing found", [])


def test_a_stream_runs_all_stages(bundle: Path) -> None:
    with Session(bundle) as session, session.stream([quarters()] * 3) as stream:
        answers = [result.answer for result in stream]
    assert [[d["colour"][0].label for _, d in found] for found in answers] == [["red", "blue", "green"]] * 3


def test_a_crop_is_not_turned_by_a_detection(tmp_path: Path) -> None:
    path = stages(tmp_path)
    path.write_text(path.read_text().replace("name.edgekit", "find.edgekit") + "turn = { part = 180 }\n")
    bundle = edgekit.build_cascade(path).save(tmp_path / "cascade.edgekit")
    with Session(bundle) as session, pytest.raises(EngineError) as error:
        session.predict(quarters())
    assert str(error.value) == (
        "stage colour turns crops by its class, and it predicts Detections; use a classifier"
    )


def test_closing_ends_every_stage(bundle: Path) -> None:
    session = Session(bundle)
    later = session.stages["colour"]
    session.close()
    with pytest.raises(UsageError, match="is closed"):
        later.predict(quarters())


def test_one_model_has_no_stages(bundle: Path) -> None:
    with Session(bundle.parent / "find.edgekit") as session:
        assert session.stages == {}
        assert session.bundle.stages == ()
        with pytest.raises(BundleError) as error:
            session.bundle.stage("colour")
        assert str(error.value).endswith("find.edgekit has no stage 'colour'; it has none")


def test_an_engine_that_a_stage_has_not(bundle: Path) -> None:
    with pytest.raises(UsageError, match="has no variant for engine 'tflite'; it has ort"):
        Session(bundle, engine="tflite")


@pytest.mark.needs_shared
def test_text_is_found_turned_and_read(shared: Path, tmp_path: Path) -> None:
    """PP-OCRv4 on a picture with three upright lines and one that is upside down."""
    from PIL import Image, ImageDraw, ImageFont

    samples = Path(__file__).resolve().parents[2] / "samples"
    for name, model in (
        ("det", "ch_PP-OCRv4_det_infer"),
        ("cls", "ch_ppocr_mobile_v2.0_cls_infer"),
        ("rec", "ch_PP-OCRv4_rec_infer"),
    ):
        built = edgekit.build(
            shared / "models" / f"{model}.onnx", targets=["ort"], card=samples / "cards" / f"{model}.toml"
        )
        built.save(tmp_path / f"{name}.edgekit")
    (tmp_path / "ocr.toml").write_bytes((samples / "cascades" / "ppocr.toml").read_bytes())
    path = edgekit.build_cascade(tmp_path / "ocr.toml").save(tmp_path / "ocr.edgekit")

    picture = Image.new("RGB", (800, 500), (235, 230, 220))
    pen = ImageDraw.Draw(picture)
    lines = ["Cascades run here", "Invoice 2026-11-22", "Total: 1,284.50 EUR"]
    for row, line in enumerate(lines):
        pen.text((60, 40 + 90 * row), line, fill=(20, 20, 40), font=ImageFont.load_default(44))
    upside = Image.new("RGB", (500, 80), (235, 230, 220))
    ImageDraw.Draw(upside).text((10, 10), "Upside down text", fill=0, font=ImageFont.load_default(44))
    picture.paste(upside.rotate(180), (60, 320))
    with Session(path, threads=1) as session:
        found = session.predict(np.asarray(picture))
    assert [details["read"].text for _, details in found] == [*lines, "Upside down text"]
    assert [details["orientation"][0].label for _, details in found] == ["upright"] * 3 + ["upside down"]


def test_a_stage_that_cannot_open_leaves_nothing_open(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    close = SessionChain.close

    def recorded(chain: SessionChain) -> None:
        closed.append(chain)
        close(chain)

    monkeypatch.setattr(SessionChain, "close", recorded)

    def no_stage(*given: object) -> None:
        raise BundleError("the stage is damaged")

    monkeypatch.setattr(Bundle, "stage", no_stage)
    with pytest.raises(BundleError, match="the stage is damaged"):
        Session(bundle)
    assert len(closed) == 1

"""``--lengths``: a text encoder at several lengths, from the build to a session's answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import edgekit
from edgekit.batch.rebuild import build_here, recipe
from edgekit.bundle.bundle import Bundle
from edgekit.cli import main
from edgekit.errors import UsageError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.release.export.export import export_variant
from edgekit.runtime import Session
from edgekit.target.shapes import ShapesRunner
from tests.fixtures.encoder import WHOLE, WIDTH, encoder, encoder_card
from tests.fixtures.texts import TOKENIZER, reranker

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]

SHORT, MIDDLE, LONG = "good", "the food was good good", "good " * 40
LENGTHS = (4, 8)


def built(folder: Path, card: Card, **options: Any) -> Bundle:
    options = {"targets": ["ort"], "lengths": LENGTHS, "trusted": True, **options}
    return edgekit.build(encoder(folder / "encoder.onnx"), card=card, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same encoder at its whole length alone."""
    folder = tmp_path_factory.mktemp("whole")
    return built(folder, encoder_card(), lengths=None).save(folder / "whole.edgekit")


def runs_of(session: Session) -> dict[int, int]:
    """How many texts ran at each of the shorter lengths."""
    runner = session.runner
    assert isinstance(runner, ShapesRunner)
    return {shapes[0][-1]: count for shapes, count in runner.runs.items()}


def lengths_of(options: Any) -> list[int]:
    return [each["inputs"]["ids"][-1] for each in options["shapes"]["further"]]


def vectors(path: Path, variant: str, texts: tuple[str, ...]) -> list[Any]:
    with Session(path, variant=variant, strict=True) as session:
        return [session.predict(text).vector for text in texts]


@pytest.mark.parametrize(
    "target",
    [
        "ort",
        pytest.param("tflite", marks=pytest.mark.needs_tflite),
        pytest.param("openvino", marks=pytest.mark.needs_openvino),
        pytest.param("coreml", marks=pytest.mark.needs_coreml),
    ],
)
def test_a_text_runs_at_the_shortest_length_that_holds_it(target: str, whole: Path, tmp_path: Path) -> None:
    path = built(tmp_path, encoder_card(), targets=[target]).save(tmp_path / "encoder.edgekit")
    expected = vectors(whole, "ort-fp32", (SHORT, MIDDLE, LONG))
    with Session(path, variant=f"{target}-fp32", strict=True) as session:
        for text, at, vector in zip((SHORT, MIDDLE, LONG), (4, 8, None), expected, strict=True):
            before = runs_of(session)
            assert session.predict(text).vector == pytest.approx(
                vector, abs=1e-3 if target == "coreml" else 1e-5
            )
            assert [length for length, count in runs_of(session).items() if count > before[length]] == (
                [at] if at else []
            )
    with Bundle.open(path) as bundle:
        figures = bundle.variants[0].evidence["shapes"]
        assert [each["shape"] for each in figures] == ["1x4", "1x8", f"1x{WHOLE}"]
        assert all(each["snr_db"] is None or each["snr_db"] > 30 for each in figures)
        assert all(each["p50_ms"] > 0 for each in figures if bundle.variants[0].evidence.get("timing"))
        assert bundle.manifest["options"]["lengths"] == list(LENGTHS)
        assert "runs at the shape of its inputs: 1x4 " in bundle.report


@pytest.mark.parametrize(
    "target",
    [
        "ort",
        pytest.param("openvino", marks=pytest.mark.needs_openvino),
        pytest.param("tflite", marks=pytest.mark.needs_tflite),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "int8-weights"])
def test_weights_are_stored_once(target: str, precision: str, whole: Path, tmp_path: Path) -> None:
    """And what is exported is the whole length, which stays a model of its own."""
    options: dict[str, Any] = {"force": True} if precision == "int8-weights" else {}
    card = encoder_card()
    bundle = built(tmp_path, card, targets=[target], precision=precision, **options)
    variant = next(each for each in bundle.variants if each.usable)
    path = bundle.save(tmp_path / "encoder.edgekit")
    if precision == "fp32":
        words = numpy_helper.to_array(onnx.load(tmp_path / "encoder.onnx").graph.initializer[0]).tobytes()
        contents = [bytes(bundle.read(entry)) for entry in set(variant.files.values())]
        assert sum(content.count(words) for content in contents) == 1
    expected = vectors(whole, "ort-fp32", (SHORT, MIDDLE))
    for vector, other in zip(vectors(path, variant.name, (SHORT, MIDDLE)), expected, strict=True):
        assert float(vector @ other) > 0.999
    files = export_variant(bundle, variant.name, tmp_path / "files")
    assert not [file for file in files if "shapes" in str(file.relative_to(tmp_path))]


def test_outputs_are_zero_at_the_padding_at_every_length(tmp_path: Path) -> None:
    path = built(tmp_path, encoder_card()).save(tmp_path / "encoder.edgekit")
    with Session(path) as session:
        for text in (SHORT, MIDDLE):
            feeds, _ = session.prepare(text)
            tokens = session.run(feeds)["tokens"]
            count = int(feeds["mask"].sum())
            assert tokens.shape == (1, WHOLE, WIDTH)
            assert not tokens[0, count:].any()
            assert tokens[0, :count].any(axis=1).all()


@pytest.mark.parametrize("precision", ["int8", "int8-dynamic", "auto", "fp16"])
def test_every_precision_has_every_length(precision: str, whole: Path, tmp_path: Path) -> None:
    samples = [
        session_feeds(whole, text) for text in (SHORT, MIDDLE, LONG, "the food", "it was bad", "bad bad") * 3
    ]
    bundle = built(
        tmp_path, encoder_card(), precision=precision, samples=samples, force=precision[:4] == "int8"
    )
    path = bundle.save(tmp_path / "encoder.edgekit")
    usable = [variant for variant in bundle.variants if variant.usable]
    if precision.startswith("int8"):  # by force; the others may be too slow on a busy machine
        assert f"ort-{precision}" in [variant.name for variant in usable]
    expected = vectors(whole, "ort-fp32", (SHORT, MIDDLE))
    for variant in usable:
        assert lengths_of(variant.options) == [4, 8]
        found = vectors(path, variant.name, (SHORT, MIDDLE))
        cosines = [float(a @ b) for a, b in zip(found, expected, strict=True)]
        assert min(cosines) > (0.9 if "int8" in variant.precision else 0.99999)


@pytest.mark.needs_coreml
def test_core_ml_refines_each_length(whole: Path, tmp_path: Path) -> None:
    bundle = built(tmp_path, encoder_card(), targets=["coreml"], precision="fp16")
    found = next(variant for variant in bundle.variants if variant.precision == "fp16")
    assert lengths_of(found.options) == [4, 8]
    assert "trace" in found.evidence["compile"]


def test_it_is_built_again_with_its_lengths(tmp_path: Path) -> None:
    path = built(tmp_path, encoder_card()).save(tmp_path / "encoder.edgekit")
    with Bundle.open(path) as bundle:
        arguments = recipe(bundle, path, {})
    again = build_here(path, arguments)
    assert lengths_of(again.variants[0].options) == [4, 8]


def session_feeds(path: Path, text: str) -> dict[str, Any]:
    with Session(path) as session:
        return session.prepare(text)[0]


def test_a_reranker_has_lengths_too(tmp_path: Path) -> None:
    model = reranker(tmp_path / "reranker.onnx")
    draft = edgekit.draft_card(model)
    (tmp_path / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    (tmp_path / "card.toml").write_text(draft.text, "utf-8")
    command = ["build", str(model), "-t", "ort", "--card", str(tmp_path / "card.toml"), "--lengths", "6"]
    done = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "r.edgekit")])
    assert done.exit_code == 0, done.output
    with Session(tmp_path / "r.edgekit") as session:
        assert session.predict(("the food", "good")).score == pytest.approx(1 / (1 + np.exp(-1)))
        assert runs_of(session) == {6: 1}


def test_padding_on_the_left_is_cut_off_on_the_left(tmp_path: Path) -> None:
    """Positions are counted from the left, so this encoder gives other outputs there, and is refused."""
    with pytest.raises(UsageError, match="ignores its mask"):
        built(tmp_path, encoder_card("left"))
    model = reranker(tmp_path / "reranker.onnx")  # has no positions
    table = edgekit.draft_card(model).card.as_json()
    table["inputs"]["input_ids"]["padding"] = "left"
    card = parse_card(table, files=lambda name: TOKENIZER.read_bytes())
    path = edgekit.build(model, targets=["ort"], card=card, lengths=[6], trusted=True).save(
        tmp_path / "r.edgekit"
    )
    with Session(path) as session:
        assert session.predict(("the food", "good")).score == pytest.approx(1 / (1 + np.exp(-1)))
        assert runs_of(session) == {6: 1}
        assert session.predict(("the food", "good good")).score == pytest.approx(1 / (1 + np.exp(-2)))
        assert runs_of(session) == {6: 1}


def test_a_model_that_does_not_honour_its_mask_is_refused(tmp_path: Path) -> None:
    model = encoder(tmp_path / "encoder.onnx", honours_mask=False)
    with pytest.raises(UsageError) as error:
        edgekit.build(model, targets=["ort"], card=encoder_card(), lengths=[4], trusted=True)
    told = str(error.value)
    assert told.startswith("encoder.onnx ignores its mask: output tokens for 4 tokens changes")
    assert told.endswith("leave lengths out")
    assert "\n" not in told


@pytest.mark.parametrize(
    ("lengths", "options", "told"),
    [
        ([16], {}, "lengths is 16; it must be numbers of tokens, ascending, below the card's 16"),
        ([8, 4], {}, "lengths is 8,4; it must be numbers of tokens, ascending, below the card's 16"),
        ([4], {"io": "nchw"}, "lengths cannot be combined with io; leave one of them out"),
        (
            [4],
            {"shrink": "-50%"},
            "lengths cannot be combined with shrink; build the model that edgekit model shrink writes",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    lengths: list[int], options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        built(tmp_path, encoder_card(), lengths=lengths, **options)
    assert str(error.value) == told


def test_without_a_mask_there_is_nothing_to_cut_off_by(tmp_path: Path) -> None:
    model, shapes = encoder(tmp_path / "e.onnx"), {"ids": (1, 16), "mask": (1, 16)}
    with pytest.raises(UsageError, match="lengths needs the text's mask: add a card with an input of"):
        edgekit.build(model, targets=["ort"], shapes=shapes, lengths=[4], trusted=True)

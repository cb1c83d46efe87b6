"""From text and sound files to answers: built, packed, and run from the bundle alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.card_files import read_card_file
from edgekit.cli import main
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.text_files import text_lines
from edgekit.errors import BundleError, SampleError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.sounds import audio, wav
from tests.fixtures.texts import TOKENIZER, reviews_model, table, text_card

TASK = {
    "kind": "classify",
    "decode": "logits",
    "outputs": {"scores": "scores"},
    "labels": ["bad", "good"],
    "top": 1,
}
MEAN = {"kind": "embed", "decode": "mean-pooling", "outputs": {"tokens": "tokens"}, "normalize": False}
SPECS = tuple(TensorSpec(name, "int64", (1, 8)) for name in ("ids", "mask"))


def card_of(task: dict[str, Any]) -> Card:
    return parse_card({**table(), "task": task}, files=lambda name: TOKENIZER.read_bytes())


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["run", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle built on random texts, which needs no tokenizers package."""
    folder = tmp_path_factory.mktemp("reviews")
    bundle = edgekit.build(reviews_model(folder / "m.onnx"), targets=["ort"], card=card_of(TASK))
    assert bundle.variants[0].verified
    return bundle.save(folder / "reviews.edgekit")


@pytest.mark.needs_ort
@pytest.mark.needs_tokenizers
def test_texts_in_answers_out(reviews: Path, tmp_path: Path) -> None:
    with Session(reviews) as session:
        assert str(session.predict("The food was very good")) == "good  0.731"
        assert session.predict("bad bad food")[0].label == "bad"
    (tmp_path / "reviews.txt").write_text("The food was good\n\nVery bad\n", "utf-8")
    code, output = run(str(reviews), "-i", f"text={tmp_path / 'reviews.txt'}")
    assert code == 0
    assert output.splitlines()[:4] == [
        "  The food was good",
        "    good  0.731",
        "  Very bad",
        "    bad  0.731",
    ]
    code, output = run(str(reviews), "--text", "bad, bad, good", "--json")
    assert code == 0
    assert json.loads(output)["answer"] == [{"index": 0, "label": "bad", "score": 0.731059}]


@pytest.mark.needs_ort
@pytest.mark.needs_tokenizers
def test_an_embedding_without_the_padding(tmp_path: Path) -> None:
    bundle = edgekit.build(reviews_model(tmp_path / "m.onnx"), targets=["ort"], card=card_of(MEAN))
    with Session(bundle) as session:
        assert session.predict("good good").vector.tolist() == [0, 0.5]  # of [CLS], two and [SEP]


@pytest.mark.needs_tokenizers
def test_lines_are_samples(tmp_path: Path) -> None:
    (tmp_path / "reviews.txt").write_text("good\n\n bad \ngood\n", "utf-8")
    samples = load_samples(tmp_path, SPECS, text_card())
    assert samples.origin == "3 files"
    assert [sample["ids"][0, 1] for sample in samples.arrays] == [10, 11, 10]
    assert len(load_samples(tmp_path, SPECS, text_card(), limit=2).arrays) == 2


def test_random_texts_are_tokens_of_the_vocabulary() -> None:
    for sample in load_samples(None, SPECS, text_card()).arrays:
        assert sample["ids"].min() >= 0
        assert sample["ids"].max() < 25
        count = int(sample["mask"].sum())
        assert 4 <= count <= 8
        assert sample["mask"].tolist() == [[1] * count + [0] * (8 - count)]
        assert not sample["ids"][0, count:].any()


def test_text_files_that_are_no_samples(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n", "utf-8")
    with pytest.raises(SampleError) as error:
        load_samples(tmp_path, SPECS, text_card())
    assert str(error.value) == f"{tmp_path / 'empty.txt'} has no text; write one text per line"
    (tmp_path / "empty.txt").write_bytes(b"\xff")
    with pytest.raises(SampleError, match=r"empty\.txt can't be read as text: 'utf-8' codec"):
        load_samples(tmp_path, SPECS, text_card())
    with pytest.raises(SampleError, match=r"the folder has empty\.txt; pass a folder or a glob"):
        load_samples(tmp_path, [TensorSpec("x", "float32", (1, 8))])
    (tmp_path / "empty.txt").write_bytes(b"\n" * 1_000_000)
    with pytest.raises(SampleError, match="it has 1000001 lines; the limit is 1000000"):
        text_lines(tmp_path / "empty.txt")


@pytest.mark.needs_ort
def test_the_tokenizer_is_packed_as_it_is(reviews: Path) -> None:
    with edgekit.Bundle.open(reviews) as bundle:
        assert read_card_file(bundle, "tokenizer.json") == TOKENIZER.read_bytes()
        with pytest.raises(BundleError, match=r"has no entry 'card/other\.json'"):
            read_card_file(bundle, "other.json")


@pytest.mark.needs_ort
def test_wrong_use(reviews: Path, tmp_path: Path) -> None:
    assert run(str(reviews), "--text", "a", "-i", "x.txt") == (2, "error: use -i or --text, not both\n")
    plain = edgekit.build(reviews_model(tmp_path / "m.onnx"), targets=["ort"]).save(
        tmp_path / "plain.edgekit"
    )
    assert run(str(plain), "--text", "a") == (
        2,
        f"error: --text needs a card with a text input, but {plain} has no such card: build it with "
        "--card card.toml (edgekit model card MODEL -o card.toml drafts one), or pass arrays with -i "
        "NAME=FILE.npy\n",
    )
    assert run(str(reviews)) == (
        2,
        'error: no text was given; add --text "...", or -i FILE.txt with one text a line\n',
    )
    for given in ("good food", "text=good food"):
        assert run(str(reviews), "-i", given) == (
            2,
            'error: good food: file not found; to pass a text itself, use --text "..."\n',
        )


EAR = """
<ir_version: 8, opset_import: ["": 17]>
ear (float[1,8] x) => (float[1,2] y) {
  loud = ReduceMax<axes=[1]>(x)
  quiet = Neg(loud)
  y = Concat<axis=1>(quiet, loud)
}
"""


@pytest.mark.needs_ort
def test_a_sound_window_by_window(tmp_path: Path) -> None:
    from onnx import parser

    (tmp_path / "ear.onnx").write_bytes(parser.parse_model(EAR).SerializeToString())
    task = {**TASK, "outputs": {"scores": "y"}, "labels": ["quiet", "loud"]}
    card = parse_card({"title": "ear", "inputs": {"x": audio(rate=8)}, "task": task})
    bundle = edgekit.build(tmp_path / "ear.onnx", targets=["ort"], card=card).save(tmp_path / "ear.edgekit")
    sound = np.array([-100] * 8 + [1 << 14] * 4, "<i2")
    (tmp_path / "long.wav").write_bytes(wav(sound.tobytes(), rate=8))
    (tmp_path / "short.wav").write_bytes(wav(sound[8:].tobytes(), rate=8))
    assert run(str(bundle), "--text", "a")[1].endswith(f"{bundle} takes sounds: add -i FILE.wav\n")
    code, output = run(str(bundle), "-i", str(tmp_path / "long.wav"))
    assert code == 0
    assert output.splitlines()[:2] == [
        "    0.00 to   1.00 s  quiet  0.502",
        "    1.00 to   1.50 s  loud  0.731",
    ]
    code, output = run(str(bundle), "-i", f"x={tmp_path / 'short.wav'}")
    assert output.splitlines()[0] == "  loud  0.731"

"""Samples side by side: the float model's answer and the variants', the worst disagreements first."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.bundle import Bundle
from edgekit.errors import SampleError
from edgekit.processing.card import parse_card
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.predictions.rank import Relevance
from edgekit.report.answers import Runs, ShownSamples, answers_of, changed_words
from edgekit.report.page import page_of
from edgekit.report.parts import Evidence, confusion, language, neighbours, residuals
from edgekit.report.parts import speech as speech_part
from edgekit.report.sources import Answer, source_of
from tests.fixtures import models
from tests.fixtures.bundles import small_bundle
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.sounds import wav
from tests.fixtures.whisper_folders import speech, write_whisper

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]

IMAGE = {"kind": "image", "shape": [1, 3, 16, 16], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
TASK = {
    "kind": "classify",
    "decode": "probabilities",
    "outputs": {"scores": "scores"},
    "labels": ["<b>cat</b>", "dog", "bird", "fish"],
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    model = models.write(tmp_path_factory.mktemp("model"), models.SMALL_CNN)
    card = parse_card({"title": "small", "inputs": {"image": IMAGE}, "task": TASK})
    return edgekit.build(model, targets=["ort", "tflite"], card=card)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return tmp_path


def test_every_sample_has_the_answers_of_the_float_model_and_of_the_others(
    bundle: Bundle, pictures: Path
) -> None:
    answers = answers_of(bundle, str(pictures))
    assert [sample.name for sample in answers.samples] == ["0.png"]  # no variant is wrong: one is enough
    assert answers.summary.endswith("on 3 pictures; none is wrong; one is shown.")
    for sample in answers.samples:
        first, second = sample.answers
        assert {first.variant, second.variant} == {"ort-fp32", "tflite-fp32"}
        assert (first.summary, second.summary) == ("the float model", "top-1 agreement 1.000")
        photo = sample.photo
        assert photo is not None
        shown = Image.open(io.BytesIO(base64.b64decode(photo.picture)))
        assert (shown.format, shown.size) == ("WEBP", (photo.width, photo.height)) == ("WEBP", (60, 40))
    assert answers.missing == ()


def test_the_worst_disagreement_comes_first(
    bundle: Bundle, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = source_of(bundle)

    def spoiled(bundle: Bundle, variant: edgekit.Variant, reads: Any) -> list[Answer]:
        answers = kind.answers(bundle, variant, reads)
        if variant.name == "tflite-fp32":  # it answers the second picture wrongly
            right, other = answers[1], answers[1].prediction
            turned = dataclasses.replace(other, indices=other.indices[::-1], scores=other.scores[::-1])
            assert right.outputs is not None
            flipped = {name: array[..., ::-1].copy() for name, array in right.outputs.items()}
            answers[1] = right._replace(prediction=turned, outputs=flipped)
        return answers

    monkeypatch.setattr("edgekit.report.answers.source_of", lambda _: kind._replace(answers=spoiled))
    answers = answers_of(bundle, str(pictures))
    assert [sample.name for sample in answers.samples] == ["1.png"]
    assert answers.samples[0].disagreement == "other than the float model's: tflite-fp32"
    assert answers.samples[0].answers[1].words[0].state == "new"
    part = confusion(Evidence(bundle, answers))
    assert part is not None
    ((right, found, count, samples),) = part.rows
    assert (count, samples) == ("1", "1.png")
    assert right != found
    assert part.caption == "Answers other than the float model's on 3 samples: tflite-fp32 1."


@pytest.mark.needs_report
def test_labels_are_escaped_on_the_page(bundle: Bundle, pictures: Path) -> None:
    page = page_of(bundle, answers=answers_of(bundle, str(pictures)))
    assert "<b>cat</b>" not in page
    assert page.count('src="data:image/webp;base64,') == 1


def test_where_there_are_no_answers_it_is_said(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"^no samples at "):
        answers_of(bundle, str(tmp_path))
    model = models.write(tmp_path, models.SMALL_CNN)
    with pytest.raises(SampleError, match=r"pass a folder or a glob of \.npz, \.npy"):  # no task: arrays
        answers_of(edgekit.build(model, targets=["ort"]), str(tmp_path))


@pytest.mark.needs_report
def test_residuals_of_a_model_without_a_task(bundle: Bundle, tmp_path: Path) -> None:
    plain = edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort", "tflite"])
    name, shape = plain.inputs[0].name, plain.inputs[0].shape
    for number in range(3):
        array = np.random.default_rng(number).normal(size=shape).astype(np.float32)
        np.savez(tmp_path / f"{number}.npz", allow_pickle=False, **{name: array})
    answers = answers_of(plain, str(tmp_path))
    assert answers.samples == ()
    part = residuals(Evidence(plain, answers))
    assert part is not None
    assert [row[:2] for row in part.rows] == [("tflite-fp32", output.name) for output in plain.outputs]
    for row in part.rows:
        assert 0 <= float(row[4]) < 1e-4 < float(row[5])  # the largest residual is far below the spread
    assert "residuals are below" not in page_of(plain, answers=answers)


def test_changed_words_of_a_text_are_marked() -> None:
    marked = [tuple(word) for word in changed_words("turn the left light off", "turn the light off now")]
    assert marked == [("same", "turn the"), ("lost", "left"), ("same", "light off"), ("new", "now")]


@pytest.mark.needs_report
def test_speech_has_its_words_and_its_real_time_factor(tmp_path: Path) -> None:
    pcm = (np.clip(speech(), -1, 1) * 32000).astype("<i2").tobytes()
    (tmp_path / "one.wav").write_bytes(wav(pcm))
    built = edgekit.build(write_whisper(tmp_path / "whisper"), targets=["ort", "tflite"])
    answers = answers_of(built, str(tmp_path / "*.wav"))
    assert len(answers.samples[0].answers[1].words) == 1  # the texts are equal
    part = speech_part(Evidence(built, answers))
    assert part is not None
    assert [row[0] for row in part.rows] == ["ort-fp32", "tflite-fp32"]
    assert all(float(row[2]) > 0 and float(row[4]) > 0 for row in part.rows)
    assert all(re.fullmatch(r"0 of \d\d", row[5]) for row in part.rows)
    assert "<dd>a run of 0.5 s of sound on" in page_of(built, answers=answers)


@pytest.mark.needs_report
def test_a_language_model_has_texts_tokens_a_second_memory_and_context(tmp_path: Path) -> None:
    built = edgekit.build(
        write_tiny(tmp_path / "tiny.gguf"), targets=["ort"], precision="auto", max_drop="50%"
    )
    (tmp_path / "prompts.txt").write_text("Once upon a time\n", "utf-8")
    answers = answers_of(built, str(tmp_path / "prompts.txt"))
    assert answers.samples[0].name == "prompts.txt, line 1"
    assert [answer.variant for answer in answers.samples[0].answers] == ["ort-int8", "ort-int4"]
    assert answers.samples[0].answers[0].summary == "closest to the source model"
    part = language(Evidence(built, answers))
    assert part is not None
    for _, at_build, _, memory, context, here in part.rows:
        assert float(at_build) > 0
        assert float(here) > 0
        assert memory.endswith(" MB")
        assert context == "128"
    assert '<section id="language">' in page_of(built, answers=answers)


def shown(expected: list[Any], found: list[Any]) -> Evidence:
    """Evidence of a variant's predictions beside the float model's."""
    own, other = ([Answer(one, None, None, 1.0) for one in each] for each in (expected, found))
    names = [f"{number}.png" for number in range(len(own))]
    runs = Runs("ort-fp32", True, own, {"ort-int8": other}, [0.0] * len(own), [], names)
    return Evidence(small_bundle(), ShownSamples("Of some.", (), (), runs))


def test_neighbours_of_embeddings_that_a_variant_finds_too() -> None:
    own = [Embedding(np.array(v, np.float32)) for v in ([1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9])]
    turned = [*own[:3], Embedding(np.array([0.9, 0.05], np.float32))]  # the last one is near the first two
    part = neighbours(shown(own, own))
    assert part is not None
    assert part.rows == [("ort-int8", "4 of 4", "100.0 %", "1.0000", "-")]
    part = neighbours(shown(own, turned))
    assert part is not None
    ((_, first, _, least, changed),) = part.rows
    assert first == "0 of 4"
    assert float(least) < 0.2
    assert changed == "0.png, 1.png, 2.png and 1 more"
    assert neighbours(shown(own[:2], own[:2])) is None  # each has one other sample


def test_scores_of_pairs_have_residuals() -> None:
    part = residuals(shown([Relevance(0.5), Relevance(0.25)], [Relevance(0.5), Relevance(0.5)]))
    assert part is not None
    assert part.rows == [("ort-int8", "score", "0.125", "0.2375", "0.25", "0.125")]

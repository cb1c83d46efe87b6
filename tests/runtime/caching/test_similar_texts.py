"""The semantic cache: a permit for texts, the answers that it reuses, and those that it must not reuse."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.processing.card import parse_card
from edgekit.runtime import Session, Similar, calibration_from_json, measure_similarity
from edgekit.runtime.caching.calibrate_similarity import COUNT_LIMIT, SimilarityCalibration
from edgekit.runtime.metrics.metrics import Metrics
from tests.fixtures.chat_bundles import chat_bundle
from tests.fixtures.encoder import WHOLE, encoder, encoder_card
from tests.fixtures.texts import TOKENIZER, reviews_model, table

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]
FILLERS = ["the", "a", "is", "was", "very", "film", "food", "staff", "service", "slow", "quick"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of reviews, and an encoder of 16 tokens."""
    folder = tmp_path_factory.mktemp("texts")
    task = {
        "kind": "classify",
        "decode": "logits",
        "outputs": {"scores": "scores"},
        "labels": ["bad", "good"],
    }
    card = parse_card({**table(), "task": task}, files=lambda name: TOKENIZER.read_bytes())
    reviews = edgekit.build(reviews_model(folder / "r.onnx"), targets=["ort"], card=card)
    reviews.save(folder / "reviews.edgekit")
    shapes = {"ids": (1, WHOLE), "mask": (1, WHOLE)}
    vectors = edgekit.build(encoder(folder / "e.onnx"), targets=["ort"], card=encoder_card(), shapes=shapes)
    vectors.save(folder / "vectors.edgekit")
    return folder


@pytest.fixture
def reviews(folder: Path) -> Iterator[Session]:
    with Session(folder / "reviews.edgekit", threads=1) as session:
        yield session


@pytest.fixture
def embedder(folder: Path) -> Iterator[Session]:
    with Session(folder / "vectors.edgekit", threads=1) as session:
        yield session


def texts(count: int, seed: int = 0, *, random_words: bool = False) -> list[str]:
    """Distinct reviews of six words: four times good or bad, or any words, whose class the others hide."""
    draw, written = random.Random(seed), dict[str, None]()
    while len(written) < count:
        kept = 0 if random_words else 4
        words = kept * [draw.choice(("good", "bad"))]
        pool = [*FILLERS, "good", "bad"] if random_words else FILLERS
        words += draw.choices(pool, k=6 - kept)
        draw.shuffle(words)
        written[" ".join(words)] = None
    return list(written)


@pytest.fixture(scope="module")
def permit(folder: Path) -> SimilarityCalibration:
    with Session(folder / "reviews.edgekit") as reviews, Session(folder / "vectors.edgekit") as embedder:
        return measure_similarity(reviews, texts(400), embedder=embedder)


def test_a_permit_bounds_the_false_hits_of_other_texts(
    permit: SimilarityCalibration, reviews: Session, embedder: Session
) -> None:
    assert permit.granted
    assert permit.embedder == embedder.bundle.digest
    assert permit.frames == 200
    assert permit.references == 200 - permit.hits
    assert str(permit).startswith(f"granted: {permit.hits} of 200 texts need no run, ")
    metrics = Metrics(reviews)
    similar = Similar(reviews, permit, metrics, embedder=embedder)
    hits = false = 0
    for text in texts(1000, seed=1):
        before = similar.hits
        answer = similar.predict(text)
        hits += similar.hits > before
        false += similar.hits > before and answer[0].label != reviews.predict(text)[0].label
    assert hits > 500
    assert false <= permit.bound * hits
    assert metrics.snapshot()["outcomes"] == {"reused": hits}


def test_too_few_texts_and_texts_whose_answers_are_unlike_get_no_permit(
    reviews: Session, embedder: Session
) -> None:
    few = measure_similarity(reviews, texts(60), embedder=embedder)
    assert not few.granted
    with pytest.raises(UsageError, match=r"^predictions must not be reused: 0 of \d+ hits were false, so "):
        Similar(reviews, few, embedder=embedder)
    labels = {text: number % 2 for number, text in enumerate(texts(400))}
    unlike = measure_similarity(
        reviews, labels, embedder=embedder, ask=labels.get, same=lambda one, other: one == other
    )
    assert not unlike.granted


def test_repeated_texts_do_not_count_as_hits(reviews: Session, embedder: Session) -> None:
    once = measure_similarity(reviews, texts(60), embedder=embedder)
    assert measure_similarity(reviews, 20 * texts(60), embedder=embedder) == once


def test_without_a_permit_only_equal_texts_are_reused(reviews: Session) -> None:
    similar = Similar(reviews)
    first = similar.predict("good good film")
    assert similar.predict("good good film") is first
    assert similar.predict("good good film.") is not first
    assert (similar.hits, similar.misses) == (1, 2)
    with pytest.raises(UsageError) as error:
        similar.predict(b"good")
    assert str(error.value) == "a text must be a str, not bytes; frames need a calibration"
    with pytest.raises(UsageError, match=r"^the text contains half of a surrogate pair"):
        similar.predict("\ud800")


def test_a_text_that_the_embedder_does_not_read_to_its_end_is_reused_for_an_equal_one_only(
    permit: SimilarityCalibration, embedder: Session, reviews: Session
) -> None:
    """Two long texts with one beginning have one embedding."""

    def ask(text: str) -> str:
        return text[-4:]

    similar = Similar(reviews, permit, embedder=embedder, ask=ask)
    long = "the food is " * 20
    assert [similar.predict(long + end) for end in ("good", "fine")] == ["good", "fine"]
    assert [similar.predict(long + end) for end in ("good", "fine")] == ["good", "fine"]
    assert similar.predict("x" * 200_000) == "xxxx"  # longer than a tokenizer takes
    assert similar.predict("") == ""
    assert (similar.hits, similar.misses) == (2, 4)


def test_a_permit_of_another_embedder_or_model_is_refused(
    permit: SimilarityCalibration, reviews: Session, embedder: Session
) -> None:
    other = "the calibration belongs to another embedder: pass that one, or measure again"
    with pytest.raises(UsageError) as error:
        Similar(reviews, replace(permit, embedder="0" * 64), embedder=embedder)
    assert str(error.value) == other
    with pytest.raises(UsageError) as error:
        Similar(reviews, permit)
    assert str(error.value) == other
    with pytest.raises(UsageError, match=r"^the calibration belongs to another model than "):
        Similar(embedder, permit, embedder=embedder)
    with pytest.raises(UsageError, match=r"^similar texts need a calibration: "):
        Similar(reviews, embedder=embedder)
    with pytest.raises(
        UsageError, match=r" is not a text encoder; its card needs one text input and the task"
    ):
        Similar(reviews, permit, embedder=reviews)
    with pytest.raises(UsageError, match=r"^with embedder=, pass texts, not a int$"):
        measure_similarity(reviews, ["good", 3], embedder=embedder)


def test_a_forged_permit_is_refused(permit: SimilarityCalibration) -> None:
    stored: dict[str, Any] = json.loads(permit.as_json())
    assert calibration_from_json(json.dumps(stored).encode()) == permit
    for changed in (
        {"false_rate": 0.0001},
        {"false_hits": -9, "false_rate": 0.001},
        {"hits": 0, "false_hits": 0, "false_rate": 0.01},
        {"hits": 10 * COUNT_LIMIT, "frames": 10 * COUNT_LIMIT, "false_rate": 0.01},
        {"hits": 300, "frames": 200},
        {"bound": 1.5},
        {"references": 0},
        {"limit": -1.0},
        {"embedder": 7},
    ):
        with pytest.raises(UsageError, match=r"^this is not a calibration that "):
            calibration_from_json(json.dumps({**stored, **changed}).encode())
    older = {name: value for name, value in stored.items() if name != "embedder"}
    assert calibration_from_json(json.dumps(older).encode()).embedder == ""


def test_answers_of_a_language_model(embedder: Session, tmp_path: Path) -> None:
    """Options are a part of the question; sampled and unfinished answers are not reused."""
    with edgekit.open(chat_bundle(tmp_path / "chat.edgekit")) as chat:
        calibration = measure_similarity(chat, texts(40), embedder=embedder, max_tokens=4)
        assert not calibration.granted  # a random model answers each text in its own way
        allowed = replace(calibration, limit=0.5, hits=100, false_hits=0, false_rate=0.03)
        similar = Similar(chat, allowed, embedder=embedder)
        first = similar.predict("the food is good", max_tokens=4)
        assert similar.predict("the food is good.", max_tokens=4) is first
        assert similar.predict("the food is good", max_tokens=5) is not first
        drawn = [similar.predict("the food is good", max_tokens=4, temperature=1.0) for _ in range(2)]
        assert drawn[0] is not drawn[1]
        cut = similar.predict("bad bad bad bad", max_tokens=2000, deadline_ms=1.0)
        assert cut.reason == "timeout"
        assert similar.predict("bad bad bad bad", max_tokens=2000, deadline_ms=1.0) is not cut

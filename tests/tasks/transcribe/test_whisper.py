"""Whisper's tokens as a transcript; windows of a long sound, with a scripted model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.generate.host.pipeline.encoder_decoder.speech import card_of
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.processing.card import Card, parse_card
from edgekit.processing.predictions.transcribe import Segment
from edgekit.processing.processing import predict_whole
from edgekit.processing.transcripts.words import text_of
from edgekit.tensor_spec import Array
from tests.fixtures.whisper_folders import FIRST_TIMESTAMP as AT
from tests.fixtures.whisper_folders import GERMAN, NO_TIMESTAMPS, START, TRANSCRIBE, TRANSLATE, write_whisper

SECONDS = 4.0
STEP_S = 0.16
"""Of the card below: its windows are eight times as long as those of the tiny model."""


@pytest.fixture
def card(tmp_path: Path) -> Card:
    return stretched(card_of(open_speech_model(write_whisper(tmp_path / "whisper"))))


def stretched(card: Card) -> Card:
    entry: Any = card.inputs["features"]
    features = replace(entry.features, frame=3200, n_fft=3200, hop=1280)
    entry = replace(entry, window=64000, hop=64000, features=features)
    assert card.task is not None
    options = replace(card.task.options, step_s=STEP_S)
    return replace(card, inputs={**card.inputs, "features": entry}, task=replace(card.task, options=options))


class Script:
    """A model that returns these tokens, window by window, and keeps the prompts."""

    def __init__(
        self, *windows: list[int], figures: tuple[float, float] = (0.0, -9.0), likely: int = 0
    ) -> None:
        self.windows, self.figures, self.likely = list(windows), figures, likely
        self.prompts: list[list[int]] = []

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.prompts.append([int(token) for token in feeds["prompt"][0] if token >= 0])
        new = self.windows.pop(0) if feeds["limit"][0] else []
        tokens = np.full((1, 48), -1, np.int64)
        tokens[0, : len(new)] = new
        logits = np.zeros((1, 64), np.float32)
        logits[0, self.likely] = 1
        return {"tokens": tokens, "logits": logits, "figures": np.array([self.figures], np.float32)}


def segments(card: Card, script: Script, seconds: float, **options: Any) -> list[tuple[float, float, str]]:
    found = predict_whole(card, script, np.zeros(int(16000 * seconds)), None, options)
    assert not script.windows
    assert found.text == " ".join(s.text for s in found.segments)
    return [(round(s.start_s, 2), round(s.end_s, 2), s.text) for s in found.segments]


def test_segments_have_times(card: Card) -> None:
    script = Script([AT, 0, AT + 5, AT + 5, 1, 2, AT + 10])
    assert segments(card, script, 3.0) == [(0.0, 0.8, "aa00"), (0.8, 1.6, "bb10 cc20")]
    assert script.prompts == [[START]]


def test_the_next_window_begins_where_the_last_whole_segment_ended(card: Card) -> None:
    script = Script([AT, 0, AT + 10, AT + 10, 1], [AT, 1, AT + 5])
    assert segments(card, script, 4.5) == [(0.0, 1.6, "aa00"), (1.6, 2.4, "bb10")]
    script = Script([AT, 0, AT + 10, AT + 10], [AT, 1, AT + 5])
    assert segments(card, script, 4.5) == [(0.0, 1.6, "aa00"), (1.6, 2.4, "bb10")]


def test_a_window_without_a_whole_segment_is_kept(card: Card) -> None:
    script = Script([AT, 0], [AT, 1, AT + 3])
    assert segments(card, script, 5.0) == [(0.0, 4.0, "aa00"), (4.0, 4.48, "bb10")]


def test_without_timestamps_a_long_sound_is_cut_where_it_is_quiet(card: Card) -> None:
    loud = np.random.default_rng(0).standard_normal(16000 * 5) * 0.1
    loud[int(16000 * 3.2) : int(16000 * 3.6)] = 0
    script = Script([0], [1])
    found = predict_whole(card, script, loud, None, {"timestamps": False})
    assert script.prompts == [[START, NO_TIMESTAMPS]] * 2
    assert [each.text for each in found.segments] == ["aa00", "bb10"]
    assert 3.2 <= found.segments[0].end_s == found.segments[1].start_s <= 3.6


def test_an_unlikely_text_where_nobody_speaks_is_dropped(card: Card) -> None:
    assert segments(card, Script([AT, 0, AT + 5], figures=(-1.5, np.log(0.7))), 1.0) == []
    assert segments(card, Script([AT, 0, AT + 5], figures=(-0.5, np.log(0.7))), 1.0) == [(0.0, 0.8, "aa00")]
    assert segments(card, Script([AT, 0, AT + 5], figures=(-1.5, np.log(0.5))), 1.0) == [(0.0, 0.8, "aa00")]


def test_the_language_is_found_once_or_given(tmp_path: Path) -> None:
    card = stretched(card_of(open_speech_model(write_whisper(tmp_path / "whisper", multilingual=True))))
    script = Script([AT, 0, AT + 5], [AT, 1, AT + 5], likely=GERMAN)
    found = predict_whole(card, script, np.zeros(16000 * 5), None, {})
    assert (found.language, found.text) == ("de", "aa00 bb10")
    assert script.prompts == [[START], [START, GERMAN, TRANSCRIBE], [START, GERMAN, TRANSCRIBE]]
    script = Script([AT, 0, AT + 5])
    assert predict_whole(card, script, np.zeros(16000), None, {"language": "en"}).language == "en"
    assert script.prompts == [[START, GERMAN - 1, TRANSCRIBE]]
    with pytest.raises(UsageError, match="language is 'xx'; the model knows en, de"):
        predict_whole(card, script, np.zeros(16000), None, {"language": "xx"})


def test_a_multilingual_model_translates(tmp_path: Path) -> None:
    card = stretched(card_of(open_speech_model(write_whisper(tmp_path / "whisper", multilingual=True))))
    script = Script([AT, 0, AT + 5])
    found = predict_whole(card, script, np.zeros(16000), None, {"language": "de", "translate": True})
    assert (found.language, found.text) == ("de", "aa00")
    assert script.prompts == [[START, GERMAN, TRANSLATE]]
    script = Script([0], likely=GERMAN)
    predict_whole(card, script, np.zeros(16000), None, {"translate": True, "timestamps": False})
    assert script.prompts == [[START], [START, GERMAN, TRANSLATE, NO_TIMESTAMPS]]


def test_a_model_with_one_language_does_not_translate(card: Card) -> None:
    with pytest.raises(UsageError) as refused:
        predict_whole(card, Script(), np.zeros(16000), None, {"translate": True})
    assert str(refused.value).endswith(
        "translate is true, but the model knows one language only; leave it out, or build a multilingual "
        "Whisper model"
    )


def test_a_language_of_a_model_with_one_is_refused(card: Card) -> None:
    with pytest.raises(UsageError, match="the model knows one language only, so leave it out"):
        predict_whole(card, Script(), np.zeros(16000), None, {"language": "en"})


def test_a_token_without_text_is_refused(card: Card) -> None:
    assert card.task is not None
    wide = replace(
        card, task=replace(card.task, options=replace(card.task.options, end=60, timestamp_first=60))
    )
    with pytest.raises(EngineError, match="token 59 has no text in the card's tokenizer"):
        predict_whole(wide, Script([59]), np.zeros(16000), None, {})


def test_the_card_survives_json(card: Card) -> None:
    again = parse_card(card.as_json(), files=lambda name: card.files[name])
    assert again == card


def test_bytes_of_tokens_are_joined_before_they_are_read() -> None:
    assert text_of([0, 1, 2, 9], ["Ġgr", "Ã", "¼n"], 3) == "grün"


def test_a_segment_as_json() -> None:
    assert Segment(0.123, 4.0, "so").as_json() == {"start_s": 0.12, "end_s": 4.0, "text": "so"}

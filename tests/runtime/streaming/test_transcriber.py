"""Words of a live sound: when they are committed, slow and failing engines, bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EdgeKitError, NoVariantError, UsageError
from edgekit.processing.card import parse_card
from edgekit.runtime import Session, Transcriber, TranscriptUpdate
from edgekit.runtime.streaming.transcriber import LoudnessDetector, ModelDetector
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import Engines
from tests.fixtures.listening_bundles import listening_bundle
from tests.fixtures.sounds import audio
from tests.fixtures.tone_speech import (
    RATE,
    ToneModel,
    silence,
    spoken,
    text_of_words,
    tone_bundle,
    tone_card,
)

BLOCK = 1600


class Clock:
    """Time that passes only while the model runs."""

    def __init__(self) -> None:
        self.now_s = self.cost_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Speech:
    """A session on the tone model, with two variants."""

    def __init__(self, engines: Engines, folder: Path, **options: Any) -> None:
        card = tone_card(folder, **options)
        self.model, self.clock, self.failing = ToneModel(card), Clock(), set[str]()
        engines["ort"].behaviour["plain"] = self._behaves("plain")
        engines["tflite"].behaviour["other"] = self._behaves("other")
        self.session = Session(tone_bundle(card))

    def _behaves(self, name: str) -> Any:
        def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
            if name in self.failing:
                raise RuntimeError("lost")
            self.clock.now_s += self.clock.cost_s
            return self.model(feeds)

        return run

    def transcriber(self, **options: Any) -> Transcriber:
        return Transcriber(self.session, clock=self.clock, **options)

    def updates(self, sound: Array, block: int = BLOCK, **options: Any) -> list[TranscriptUpdate]:
        return list(self.transcriber(**options).listen(blocks(sound, block)))


def blocks(sound: Array, size: int = BLOCK) -> Iterator[Array]:
    return (sound[start : start + size] for start in range(0, len(sound), size))


def text(updates: list[TranscriptUpdate]) -> str:
    return "".join(update.text for update in updates)


@pytest.fixture
def speech(engines: Engines, tmp_path: Path) -> Iterator[Speech]:
    found = Speech(engines, tmp_path / "whisper")
    yield found
    found.session.close()


def random_words(count: int) -> list[int]:
    """Words of which no two in turn are the same."""
    steps = np.random.default_rng(1).integers(1, 6, count)
    return [int(word) for word in np.cumsum(steps) % 6]


def test_words_are_provisional_first_and_final_in_the_end(speech: Speech) -> None:
    words = [0, 1, 2, 3, 4]
    updates = speech.updates(np.concatenate([spoken(words), silence(1.5)]))
    assert text(updates) == text_of_words(words)
    assert updates[0].text == ""
    assert updates[0].provisional
    assert updates[-1].is_end
    assert updates[-1].provisional == ""
    committed = ""
    for update in updates:  # what is final was provisional before, up to the cut-off word at the end
        assert text_of_words(words).startswith(committed + update.text)
        committed += update.text
    assert len([update for update in updates if update.text]) >= 3
    assert [u.end_s for u in updates] == sorted(u.end_s for u in updates)


def test_a_word_that_was_cut_off_is_not_committed(speech: Speech) -> None:
    updates = speech.updates(np.concatenate([spoken(random_words(8)), silence(1)]), step_s=0.5)
    provisional = " ".join(update.provisional for update in updates)
    assert "uu02" in provisional  # the model read it
    assert "uu02" not in text(updates)


@pytest.mark.parametrize("block", [100, 1600, 7001, 10**6])
def test_the_size_of_blocks_does_not_matter(speech: Speech, block: int) -> None:
    sound = np.concatenate([silence(0.5), spoken(random_words(12)), silence(1), spoken([1, 2]), silence(1)])
    assert speech.updates(sound, block) == speech.updates(sound)


def test_each_word_of_a_long_sound_comes_once_and_memory_is_bounded(speech: Speech) -> None:
    words = random_words(200)
    transcriber = speech.transcriber()
    sizes, found = set(), []
    for block in blocks(spoken(words)):
        found += transcriber.feed(block)
        arrays = [value for value in vars(transcriber).values() if isinstance(value, np.ndarray)]
        sizes.add(sum(array.size for array in arrays))
        assert transcriber._agreement.count < 12
    found += transcriber.finish()
    assert text(found) == text_of_words(words)
    assert max(sizes) < 6 * RATE
    assert max(len(u.provisional) for u in found) < 60


def test_silence_costs_no_run(speech: Speech) -> None:
    transcriber = speech.transcriber()
    assert list(transcriber.listen(blocks(silence(30)))) == []
    assert speech.model.runs == 0
    sound = np.concatenate([silence(3), spoken([3, 1]), silence(20)])
    updates = list(transcriber.listen(blocks(sound)))
    assert text(updates) == text_of_words([3, 1])
    assert speech.model.runs <= 3
    assert 32.4 < updates[-1].start_s < 33  # the second sound goes on in the first


def test_a_sound_is_read_once_after_its_last_word_and_its_end_is_reported(speech: Speech) -> None:
    updates = speech.updates(np.concatenate([spoken([1, 2]), silence(1.5)]), step_s=0.2)
    assert speech.model.runs <= 6
    assert [update.is_end for update in updates] == [*[False] * (len(updates) - 1), True]
    assert updates[-1].text == ""  # all words were committed before


def test_a_short_phrase_stays_as_context_and_a_long_one_is_cut_at_its_pause(speech: Speech) -> None:
    transcriber = speech.transcriber()
    transcriber.feed(np.concatenate([spoken([1, 2]), silence(0.8)]))
    assert transcriber._length == transcriber._position
    assert transcriber._agreement.count == 2
    found = transcriber.feed(spoken([3, 4, 5, 0, 1, 2]))  # five seconds: the sound is cut at the pause
    assert transcriber._length < 4 * RATE
    assert transcriber._agreement.count + len(found[-1].provisional.split()) <= 6
    transcriber.feed(silence(0.8))
    assert transcriber._length < 0.5 * RATE


def test_a_slow_machine_skips_hypotheses_and_keeps_up(speech: Speech) -> None:
    words = random_words(60)
    sound = np.concatenate([spoken(words), silence(1)])
    quick = speech.updates(sound)
    runs = speech.model.runs
    speech.clock.cost_s = 2.0
    slow = speech.updates(sound)
    assert text(quick) == text(slow) == text_of_words(words)
    spent_s = 2.0 * (speech.model.runs - runs)
    assert spent_s <= len(sound) / RATE + 2  # as much as the sound lasts, or the delay would grow
    assert speech.model.runs - runs < runs
    assert any(update.seconds == 2.0 for update in slow)


def test_another_variant_goes_on_where_one_fails(speech: Speech) -> None:
    words = random_words(16)
    transcriber, sound = speech.transcriber(), spoken(words)
    found = [update for block in blocks(sound[: 4 * RATE]) for update in transcriber.feed(block)]
    speech.failing.add("plain")
    found += [update for block in blocks(sound[4 * RATE :]) for update in transcriber.feed(block)]
    found += transcriber.finish()
    assert text(found) == text_of_words(words)
    assert [each.to for each in speech.session.fallbacks] == ["other"]


def test_words_before_and_after_a_total_failure_are_kept(speech: Speech) -> None:
    transcriber, found = speech.transcriber(), []
    sound = np.concatenate([spoken([0, 1, 2, 3]), silence(1)])
    for number, block in enumerate(blocks(sound)):
        speech.failing = {"plain", "other"} if number == 12 else set()  # a hypothesis is due
        try:
            found += transcriber.feed(block)
        except NoVariantError:
            assert number == 12
    assert text(found) == text_of_words([0, 1, 2, 3])


def test_the_sound_does_not_grow_while_every_variant_fails(speech: Speech) -> None:
    transcriber, failures = speech.transcriber(), 0
    speech.failing = {"plain", "other"}
    for block in blocks(spoken(random_words(30))):
        try:
            transcriber.feed(block)
        except EdgeKitError:
            failures += 1
        assert transcriber._length <= 5 * RATE + 512
        assert len(transcriber._waiting) < 512
    assert failures
    speech.failing = set()
    found = transcriber.feed(np.concatenate([silence(3), spoken([4, 2]), silence(1)]))
    assert text(found).endswith(text_of_words([4, 2]))


def test_the_language_is_searched_until_words_are_committed(engines: Engines, tmp_path: Path) -> None:
    speech = Speech(engines, tmp_path / "whisper", multilingual=True)
    prompts = list[int]()
    model = speech.model

    def counts(feeds: Mapping[str, Array]) -> dict[str, Array]:
        prompts.append(int((feeds["prompt"][0] >= 0).sum()))
        return model(feeds)

    speech.model = counts  # type: ignore[assignment]
    assert text(speech.updates(spoken([0, 1, 2, 3, 4, 5]))) == text_of_words([0, 1, 2, 3, 4, 5])
    assert prompts[:2] == [1, 4]  # the start alone: which language is it?
    assert prompts[-2:] == [4, 4]
    prompts.clear()
    assert text(speech.updates(spoken([0, 1]), language="de")) == text_of_words([0, 1])
    assert set(prompts) == {4}
    speech.session.close()


def test_loudness_finds_speech_in_noise() -> None:
    random, detector = np.random.default_rng(2), LoudnessDetector(RATE)
    hop = detector.hop
    noise = random.standard_normal(4 * RATE) * 0.003
    speaks = [detector.is_speech(noise[i : i + hop]) for i in range(0, len(noise) - hop, hop)]
    assert not any(speaks[5:])
    loud = spoken([0, 1])[: int(0.4 * RATE)] + noise[: int(0.4 * RATE)]
    assert all(detector.is_speech(loud[i : i + hop]) for i in range(0, len(loud) - hop, hop))
    assert not detector.is_speech(noise[:hop])


def test_what_does_not_fit_is_refused(speech: Speech, engines: Engines) -> None:
    def refusal(session: Session, **options: Any) -> str:
        with pytest.raises(UsageError) as refused:
            Transcriber(session, **options)
        return str(refused.value)

    assert refusal(speech.session, rate=44100).startswith(
        "pieces of a sound must have the card's rate, 16000"
    )
    assert (
        refusal(speech.session, longest_s=6) == "longest_s is 6; it must be at most the model's window, 5 s"
    )
    assert refusal(speech.session, step_s=0) == (
        "step_s is 0, pause_s 0.7 and longest_s 5; all must be above 0"
    )
    assert refusal(speech.session, timestamps=True) == (
        "a live sound is transcribed without timestamps; leave timestamps out"
    )
    assert refusal(speech.session, beam=3).startswith("whisper has no option beam; available: ")
    assert refusal(speech.session, voice_activity=speech.session) == (
        f"{speech.session.card.title} does not detect voice activity; its card needs that task"
    )
    with pytest.raises(UsageError, match="a sound is a numpy array"):
        speech.transcriber().feed([0.0])  # type: ignore[arg-type]
    with pytest.raises(UsageError) as refused:
        speech.session.listen(spoken([0]))
    assert str(refused.value).endswith(
        "transcribes a sound as a whole: use predict(sound), or for a live sound "
        "Transcriber(session).listen(blocks)"
    )
    with Session(small_bundle()) as other:
        sound = {"kind": "audio", "shape": [1, 6], "rate": 16000}
        other._card = parse_card({"title": "tick", "inputs": {"x": sound}})
        assert refusal(other) == "tick does not transcribe speech; session.listen goes through its windows"


VOICE: dict[str, Any] = {
    "title": "voice",
    "inputs": {"x": audio(shape=[1, 512]), "h": {"kind": "tensor", "shape": [1, 1]}},
    "states": {"h": "hn"},
    "task": {"kind": "voice-activity", "decode": "probability", "outputs": {"probability": "y"}},
}


def test_a_model_finds_the_pauses(speech: Speech, engines: Engines) -> None:
    def voice(feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Deep sounds are not a voice: they cross zero rarely."""
        signs = np.diff(np.signbit(feeds["x"][0])).sum()
        found = np.array([[0.9 if signs > 15 else 0.0]], np.float32)
        return {"y": found, "hn": feeds["h"]}

    engines["ort"].behaviour["voice"] = voice
    hum = 0.3 * np.sin(2 * np.pi * 50 * np.arange(3 * RATE) / RATE)
    with Session(listening_bundle(VOICE, 512, variant("voice", "ort"))) as session:
        speech.updates(hum)
        runs = speech.model.runs
        assert runs
        assert speech.updates(hum, voice_activity=session) == []
        assert speech.model.runs == runs
        updates = speech.updates(
            np.concatenate([silence(1), spoken([3, 1, 4]), silence(1)]), voice_activity=session
        )
        assert text(updates) == text_of_words([3, 1, 4])
        entry: Any = speech.session.card.inputs["features"]
        slow = replace(speech.session.card, inputs={"features": replace(entry, rate=8000)})
        speech.session._card = slow
        with pytest.raises(UsageError) as refused:
            Transcriber(speech.session, voice_activity=session)
        assert str(refused.value) == (
            "voice takes sounds of 16000 Hz, but the speech model 8000 Hz; leave voice_activity out, or "
            "build it for that rate"
        )


def test_speech_ends_below_the_lower_threshold(engines: Engines) -> None:
    def voice(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": np.abs(feeds["x"]).max(keepdims=True).reshape(1, 1), "hn": feeds["h"]}

    engines["ort"].behaviour["voice"] = voice
    with Session(listening_bundle(VOICE, 512, variant("voice", "ort"))) as session:
        detector = ModelDetector(session, RATE)
        levels = [0.4, 0.5, 0.4, 0.36, 0.3, 0.4, 0.6]
        speaks = [detector.is_speech(np.full(512, level)) for level in levels]
        assert speaks == [False, True, True, True, False, False, True]

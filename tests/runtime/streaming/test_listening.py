"""A long or a live sound, window by window, and what is carried from one to the next."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, NoVariantError, UsageError
from edgekit.processing.card import parse_card
from edgekit.processing.predictions.windows import WindowPredictions
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import variant
from tests.fixtures.fake_engines import Behaviour, Engines
from tests.fixtures.listening_bundles import listening_bundle
from tests.fixtures.sounds import audio
from tests.fixtures.threads import in_threads

SUMS: dict[str, Any] = {
    "title": "sums",
    "inputs": {"x": audio(shape=[1, 6], context=2), "h": {"kind": "tensor", "shape": [1, 1]}},
    "states": {"h": "hn"},
    "task": {"kind": "voice-activity", "decode": "probability", "outputs": {"probability": "hn"}},
}
"""The state is the sum of all windows so far."""


def summed(feeds: Mapping[str, Array]) -> dict[str, Array]:
    total = feeds["h"] + feeds["x"].sum(dtype=np.float32)
    return {"y": feeds["x"][:, :1].copy(), "hn": total}


FAILING: set[str] = set()
"""Variants that fail from now on."""


def behaves(variant_name: str) -> Behaviour:
    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if variant_name in FAILING:
            raise RuntimeError("lost")
        return summed(feeds)

    return run


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    FAILING.clear()
    engines["ort"].behaviour["plain"] = behaves("plain")
    engines["tflite"].behaviour["other"] = behaves("other")
    with Session(listening_bundle(SUMS, 6)) as opened:
        yield opened


def ones(count: int) -> Array:
    return np.ones(count, np.float32)


def test_states_and_context_go_from_call_to_call(session: Session) -> None:
    found = [session.predict(ones(4) / 64).probability * 64 for _ in range(3)]
    assert found == [4, 4 + 6, 4 + 6 + 6]  # two zeros before the first four; then two of the window before
    session.reset()
    assert session.predict(ones(4) / 64).probability * 64 == 4


def test_a_short_call_is_filled_up_and_so_is_the_context_after_it(session: Session) -> None:
    assert session.predict(ones(1) / 64).probability * 64 == 1
    assert session.predict(ones(4) / 64).probability * 64 == 1 + 4


def test_a_fallback_goes_on_with_the_states(session: Session) -> None:
    session.predict(ones(4) / 64)
    FAILING.add("plain")
    assert session.predict(ones(4) / 64).probability * 64 == 10
    assert [each.to for each in session.fallbacks] == ["other"]


def test_a_call_that_fails_carries_nothing(session: Session) -> None:
    session.predict(ones(4) / 64)
    with pytest.raises(UsageError):
        session.predict(ones(5))
    FAILING.update(("plain", "other"))
    with pytest.raises((EngineError, NoVariantError)):
        session.predict(ones(4) / 64)
    FAILING.clear()
    assert session.predict(ones(4) / 64).probability * 64 == 10


def test_listening_has_a_stream_of_its_own(session: Session) -> None:
    session.predict(ones(4) / 64)
    windows = list(session.listen(ones(10) / 64))
    assert [w.prediction.probability * 64 for w in windows] == [4, 10, 14]
    assert [(w.start_s * 16000, w.end_s * 16000) for w in windows] == [(0, 4), (4, 8), (8, 10)]
    assert session.predict(ones(4) / 64).probability * 64 == 10


def test_a_live_sound_is_predicted_as_soon_as_a_window_is_complete(session: Session) -> None:
    taken: list[int] = []

    def microphone() -> Iterator[Array]:
        for count in (3, 3, 1, 5):
            taken.append(count)
            yield ones(count) / 64

    listening = session.listen(microphone())
    assert next(listening).prediction.probability * 64 == 4
    assert taken == [3, 3]
    assert [w.prediction.probability * 64 for w in listening] == [10, 16]
    assert taken == [3, 3, 1, 5]


def test_the_tasks_answer_for_the_whole(session: Session) -> None:
    segments = session.listen(ones(4000) / 64, min_speech_s=0.1, pad_s=0).answer()
    assert [(round(s.start_s, 4), s.end_s) for s in segments] == [(0.0013, 0.25)]  # from the sixth window


def test_calls_from_threads_are_one_stream(session: Session) -> None:
    in_threads(*(partial(session.predict, ones(4) / 64) for _ in range(8)))
    assert session.predict(ones(4) / 64).probability * 64 == 4 + 8 * 6


def test_its_steps_are_not_taken_apart(session: Session) -> None:
    with pytest.raises(UsageError) as error:
        session.prepare(ones(4))
    assert str(error.value) == (
        "sums keeps states between runs, so its steps cannot run separately: use predict() or listen(), or "
        "run() with your own states"
    )


CLASSES: dict[str, Any] = {
    "title": "classes",
    "inputs": {"x": audio(hop=4), "h": {"kind": "tensor", "shape": [1, 1], "value": 0, "dtype": "float32"}},
    "task": {"kind": "classify", "decode": "probabilities", "outputs": {"scores": "y"}, "labels": ["loud"]},
}


@pytest.mark.parametrize(
    ("count", "windows"),
    [
        (1, [(0, 1)]),
        (8, [(0, 8)]),
        (9, [(0, 8), (4, 9)]),
        (12, [(0, 8), (4, 12)]),
        (13, [(0, 8), (4, 12), (8, 13)]),
    ],
)
def test_windows_overlap_and_every_sample_is_in_one(
    engines: Engines, count: int, windows: list[tuple[int, int]]
) -> None:
    engines["ort"].behaviour["plain"] = summed
    with Session(listening_bundle(CLASSES, 8, variant("plain", "ort"))) as session:
        found = session.listen(ones(count)).answer()
        assert isinstance(found, WindowPredictions)
        assert [(round(w.start_s * 16000), round(w.end_s * 16000)) for w in found] == windows
        assert found.as_json()[0]["prediction"] == [{"index": 0, "label": "loud", "score": 1.0}]
        assert str(found).splitlines()[0] == "  0.00 to   0.00 s  loud  1.000"
        assert str(session.predict(ones(8))) == "loud  1.000"


def test_what_is_not_listened_to(session: Session) -> None:
    with pytest.raises(UsageError) as error:
        session.listen(iter([ones(4)]), rate=8000)
    assert str(error.value) == (
        "pieces of a sound must have the card's rate, 16000 Hz, not 8000: give the whole sound, or resample "
        "it before"
    )
    image = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    session._card = parse_card({"title": "eye", "inputs": {"x": image}})
    with pytest.raises(UsageError) as error:
        session.listen(ones(4))
    assert str(error.value) == "eye does not take sound: its input x has kind image"


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
@pytest.mark.parametrize("rate", [None, 44100])
def test_a_long_recording_takes_little_memory(engines: Engines, dtype: type, rate: int | None) -> None:
    width = 16_000
    card = {**SUMS, "inputs": {"x": audio(shape=[1, width]), "h": SUMS["inputs"]["h"]}}
    engines["ort"].behaviour["plain"] = behaves("plain")
    sound: Array = np.ones(150 * width, dtype)
    with Session(listening_bundle(card, width)) as session:
        sum(1 for _ in session.listen(sound[: 2 * width], rate=rate))  # imports, and the filter
        tracemalloc.start()
        try:
            windows = sum(1 for _ in session.listen(sound, rate=rate))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert windows == (150 if rate is None else 55)
    assert peak_bytes < 1.5 * sound.nbytes  # 2.4 or 4.8 MB, and the pieces at hand

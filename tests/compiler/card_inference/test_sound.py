"""Drafted cards of models of sounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.card_inference.draft import draft_card
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort
MODELS = Path(__file__).parents[4] / "shared" / "models"

VOICE = """<ir_version: 8, opset_import: ["": 17]>
voice (float[1,{window}] sound, float[1,8] state, int64 sr) => (float[1,1] p, float[1,8] next)
{{
    rate = Cast<to = 1>(sr)
    mean = ReduceMean<axes = [1], keepdims = 1>(sound)
    scaled = Mul(mean, rate)
    next = Add(state, scaled)
    least = ReduceMin<axes = [1], keepdims = 1>(next)
    p = Sigmoid(least)
}}
"""
KEYWORDS = """<ir_version: 8, opset_import: ["": 17]>
keywords (float[N,49,10,1] features) => (float[N,12] scores)
{
    shape = Constant<value_ints = [1, 490]>()
    flat = Reshape(features, shape)
    starts = Constant<value_ints = [0]>()
    ends = Constant<value_ints = [12]>()
    axes = Constant<value_ints = [1]>()
    few = Slice(flat, starts, ends, axes)
    scores = Softmax<axis = 1>(few)
}
"""


def test_states_and_a_rate_make_it_voice_activity(tmp_path: Path) -> None:
    draft = draft_card(models.write(tmp_path, VOICE.format(window=576)))
    kinds = {name: entry.kind for name, entry in draft.card.inputs.items()}
    assert kinds == {"sound": "audio", "state": "tensor", "sr": "tensor"}
    assert draft.card.states == {"state": "next"}
    assert 'decode = "probability"  # one number beside 1 outputs like an input: states' in draft.text
    assert "context = 64  # Silero's: the last samples of the run before" in draft.text
    assert draft.guessed == ()


def test_another_window_than_silero_s_is_a_guess(tmp_path: Path) -> None:
    draft = draft_card(models.write(tmp_path, VOICE.format(window=512)))
    assert draft.guessed == ("inputs.sound.rate", "task.decode")
    assert "context" not in draft.text


def test_a_few_numbers_are_no_window(tmp_path: Path) -> None:
    assert draft_card(models.write(tmp_path, VOICE.format(window=100))).card.task is None


def test_keywords_on_mfcc(tmp_path: Path) -> None:
    draft = draft_card(models.write(tmp_path, KEYWORDS))
    assert draft.card.task is not None
    assert draft.card.task.labels[:2] == ("down", "go")
    assert draft.card.inputs["features"].kind == "audio"
    assert draft.guessed == ("inputs.features.rate", "task.labels")


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_sequence"])
def test_silero(name: str) -> None:
    draft = draft_card(MODELS / f"{name}.onnx")
    assert draft.card.task is not None
    assert (draft.card.task.kind, draft.guessed) == ("voice-activity", ())

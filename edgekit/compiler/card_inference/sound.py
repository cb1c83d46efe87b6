"""Recognizes models of sounds: voice activity with its states, keyword spotting on MFCC."""

from __future__ import annotations

import math
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.image_habits import Habits
from edgekit.compiler.card_inference.lines import Line
from edgekit.compiler.card_inference.recognized import Recognized
from edgekit.tensor_spec import TensorSpec

RATE_HZ = 16_000
SILERO_WINDOW, SILERO_CONTEXT = 576, 64
"""Of Silero VAD 5 and 6 at 16 kHz: 512 new samples after the last 64 of the run before."""
MLPERF_KEYWORDS = (
    "down",
    "go",
    "left",
    "no",
    "off",
    "on",
    "right",
    "stop",
    "up",
    "yes",
    "silence",
    "unknown",
)
MLPERF_MFCC = {
    "kind": "mfcc", "frame": 480, "hop": 320, "power": 1, "mels": 40, "fmin": 20, "fmax": 4000,
    "triangles": "mel", "log": "ln", "offset": 1e-6, "coefficients": 10, "dct": "htk",
}  # fmt: skip
"""mlcommons/tiny, benchmark/training/keyword_spotting/get_dataset.py."""
SHORTEST, LONGEST = 256, 1 << 20
"""Samples of a window."""
NO_PICTURE = Habits("no picture")


class Draftable(NamedTuple):
    """A model of sounds or texts.

    Attributes:
        inputs: Lines by input name.
        task: Its task.
        states: An input -> the output that it is at the next call.
    """

    inputs: dict[str, list[Line]]
    task: Recognized
    states: dict[str, str]


def draft_sound(facts: Facts) -> Draftable | None:
    """The inputs and the task of a model of sounds; None where it is not known to be one."""
    return _voice_activity(facts) or _keywords(facts)


def _voice_activity(facts: Facts) -> Draftable | None:
    """Samples in, one probability out, and states that come out as they go in."""
    states = _states(facts)
    rest = [spec for spec in facts.inputs if spec.name not in states]
    sounds = [spec for spec in rest if _is_window(spec)]
    rates = [spec for spec in rest if spec.dtype in ("int64", "int32") and math.prod(spec.shape) == 1]
    results = [o for o in facts.outputs if o.name not in states.values() and math.prod(o.shape) == 1]
    if len(sounds) != 1 or len(results) != 1 or len(rest) != len(sounds) + len(rates):
        return None
    sound = sounds[0]
    if not states or not facts.outputs:
        return None
    lines = [
        Line("kind", "audio", "one row of floats"),
        Line("shape", sound.shape),
        Line("rate", RATE_HZ, "the usual rate of speech", True),
    ]
    if sound.shape[-1] == SILERO_WINDOW:
        lines[-1] = Line("rate", RATE_HZ, "Silero's, with windows of 576 samples")
        lines.append(Line("context", SILERO_CONTEXT, "Silero's: the last samples of the run before"))
    inputs = {sound.name: lines}
    for spec in facts.inputs:
        if spec.name in states:
            inputs[spec.name] = [
                Line("kind", "tensor", f"a state: what {states[spec.name]} was, zeros at first"),
                Line("shape", spec.shape),
            ]
    for spec in rates:
        inputs[spec.name] = [
            Line("kind", "tensor", "one integer: the rate"),
            Line("shape", spec.shape),
            Line("value", RATE_HZ),
            Line("dtype", spec.dtype),
        ]
    why = f"one number beside {len(states)} outputs like an input: states"
    guessed = sound.shape[-1] != SILERO_WINDOW
    task = Recognized(
        "voice-activity", "probability", {"probability": results[0].name}, why, NO_PICTURE, guessed
    )
    return Draftable(inputs, task, states)


def _keywords(facts: Facts) -> Draftable | None:
    """MLPerf Tiny's keyword spotting: 49 frames of 10 MFCC, 12 classes."""
    if len(facts.inputs) != 1 or len(facts.outputs) != 1:
        return None
    spec, output = facts.inputs[0], facts.outputs[0]
    if spec.shape != (1, 49, 10, 1) or math.prod(output.shape) != len(MLPERF_KEYWORDS):
        return None
    lines = [
        Line("kind", "audio", "49 frames of 10 features: MLPerf Tiny's keyword spotting"),
        Line("shape", spec.shape, "the model's own"),
        Line("rate", RATE_HZ, "MLPerf Tiny's, as the next lines", True),
        Line("window", RATE_HZ),
        Line("hop", RATE_HZ // 2),
        Line("normalize", "max"),
        Line("features", MLPERF_MFCC),
    ]
    if spec.dtype != "float32":
        return None
    probable = "Softmax" in facts.activations(output.name)
    task = Recognized(
        "classify", "probabilities" if probable else "logits", {"scores": output.name}, "12 classes of words",
        NO_PICTURE, lines=[Line("labels", MLPERF_KEYWORDS, "MLPerf Tiny's order", guessed=True)],
    )  # fmt: skip
    return Draftable({spec.name: lines}, task, {})


def _states(facts: Facts) -> dict[str, str]:
    """Inputs of which there is an output of the same shape and dtype, in the order of both."""
    free = list(facts.outputs)
    found = {}
    for spec in facts.inputs:
        if not spec.dtype.startswith("float") or math.prod(spec.shape) < 2:
            continue
        same = [o for o in free if (o.shape, o.dtype) == (spec.shape, spec.dtype)]
        if same:
            found[spec.name] = same[0].name
            free.remove(same[0])
    return found


def _is_window(spec: TensorSpec) -> bool:
    samples = max(spec.shape, default=0)
    plain = spec.dtype.startswith("float") and math.prod(spec.shape) == samples
    return plain and SHORTEST <= samples <= LONGEST

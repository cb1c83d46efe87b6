"""Recognizes voice activity: samples and states in, one probability out."""

from __future__ import annotations

import math

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import NO_PICTURE
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import Draftable, Recognized, Recognizers
from edgekit.tensor_spec import TensorSpec

RATE_HZ = 16_000
SILERO_WINDOW, SILERO_CONTEXT = 576, 64
"""Of Silero VAD 5 and 6 at 16 kHz: 512 new samples after the last 64 of the run before."""
SHORTEST, LONGEST = 256, 1 << 20
"""Samples of a window."""


def recognize_voice_activity(facts: GraphFacts) -> Draftable | None:
    """Recognize an input of samples, an output of one probability, and states whose outputs match their
    inputs."""
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
        CardLine("kind", "audio", "one row of floats"),
        CardLine("shape", sound.shape),
        CardLine("rate", RATE_HZ, "the usual rate of speech", True),
    ]
    if sound.shape[-1] == SILERO_WINDOW:
        lines[-1] = CardLine("rate", RATE_HZ, "Silero's, with windows of 576 samples")
        lines.append(CardLine("context", SILERO_CONTEXT, "Silero's: the last samples of the run before"))
    inputs = {sound.name: lines}
    for spec in facts.inputs:
        if spec.name in states:
            inputs[spec.name] = [
                CardLine("kind", "tensor", f"a state: what {states[spec.name]} was, zeros at first"),
                CardLine("shape", spec.shape),
            ]
    for spec in rates:
        inputs[spec.name] = [
            CardLine("kind", "tensor", "one integer: the rate"),
            CardLine("shape", spec.shape),
            CardLine("value", RATE_HZ),
            CardLine("dtype", spec.dtype),
        ]
    reason = f"one number beside {len(states)} outputs like an input: states"
    guessed = sound.shape[-1] != SILERO_WINDOW
    task = Recognized(
        "voice-activity", "probability", {"probability": results[0].name}, reason, NO_PICTURE, guessed
    )
    return Draftable(inputs, task, states)


def _states(facts: GraphFacts) -> dict[str, str]:
    """Return the inputs that match an output in shape and dtype, with that output, in the order of both."""
    free = list(facts.outputs)
    output_by_input = {}
    for spec in facts.inputs:
        if not spec.dtype.startswith("float") or math.prod(spec.shape) < 2:
            continue
        same = [o for o in free if (o.shape, o.dtype) == (spec.shape, spec.dtype)]
        if same:
            output_by_input[spec.name] = same[0].name
            free.remove(same[0])
    return output_by_input


def _is_window(spec: TensorSpec) -> bool:
    samples = max(spec.shape, default=0)
    plain = spec.dtype.startswith("float") and math.prod(spec.shape) == samples
    return plain and SHORTEST <= samples <= LONGEST


RECOGNIZERS = Recognizers(sounds={110: recognize_voice_activity})

"""Asks the tasks' recognizers in their order: the first that knows a model's outputs names its task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.recognized import (
    Draftable,
    ImageShape,
    Recognized,
    Recognizers,
    TextOutputs,
)
from edgekit.processing.task_table import all_tasks, has_decoder

LEAST_POOLED = 64
"""Numbers from which a vector for a text is an embedding."""

Recognizer = TypeVar("Recognizer")


def recognize(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Return the task of a model with one picture as input; None if no decoder reads its outputs."""
    for recognizer in _in_order(lambda spec: spec.pictures):
        recognized = recognizer(facts, image)
        if recognized is not None and has_decoder(recognized.kind, recognized.decode):
            return recognized
    return None


def recognize_text(facts: GraphFacts) -> Recognized | None:
    """Return the task of a model with a tokenized text as input; None if its outputs are not recognized."""
    floats = [output for output in facts.outputs if output.dtype.startswith("float")]
    tokens = facts.inputs[0].shape[-1]
    vectors = [o for o in floats if len(o.shape) == 2 and o.shape[0] == 1]
    pooled = [o for o in vectors if o.shape[1] >= LEAST_POOLED]
    sequences = [o for o in floats if len(o.shape) == 3 and o.shape[:2] == (1, tokens)]
    outputs = TextOutputs(vectors, pooled, sequences)
    tasks = (recognizer(facts, outputs) for recognizer in _in_order(lambda spec: spec.texts))
    return next((task for task in tasks if task is not None), None)


def recognize_sound(facts: GraphFacts) -> Draftable | None:
    """Return the inputs and the task of a sound model; None if it is not recognized as one."""
    drafts = (recognizer(facts) for recognizer in _in_order(lambda spec: spec.sounds))
    return next((draft for draft in drafts if draft is not None), None)


def _in_order(select: Callable[[Recognizers], Mapping[int, Recognizer]]) -> Iterator[Recognizer]:
    """Yield the recognizers of all tasks, lowest priority number first."""
    tasks = [task.load(task.recognize).RECOGNIZERS for task in all_tasks() if task.recognize]
    places = [entry for recognizers in tasks for entry in select(recognizers).items()]
    return (recognizer for _, recognizer in sorted(places, key=lambda entry: entry[0]))

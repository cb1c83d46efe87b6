"""Recognizes embeddings: one vector."""

from __future__ import annotations

import math

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.hugging_face_files import POOLING
from edgekit.compiler.card_inference.image_habits import ARCFACE, NO_PICTURE
from edgekit.compiler.card_inference.labels import names_in
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers, TextOutputs
from edgekit.tasks.classify.recognize import habits_of

EMBEDDINGS = (64, 128, 256, 384, 512, 768, 1024, 1280, 2048)
"""Lengths of vectors that networks are trained to give; few data sets have as many classes."""


def recognize_embedding(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one vector of a typical embedding length without a softmax."""
    if len(facts.outputs) != 1 or names_in(facts.metadata):
        return None
    output = facts.outputs[0]
    length = max(output.shape, default=0)
    if length not in EMBEDDINGS or math.prod(output.shape) != length:
        return None
    if facts.activations(output.name) & {"Softmax", "Sigmoid"}:
        return None
    habits = ARCFACE if (image.height, image.width) == (112, 112) else habits_of(facts, image)
    reason = f"a vector of {length} numbers without a softmax"
    return Recognized("embed", "vector", {"embedding": output.name}, reason, habits, guessed=True)


def recognize_text_embedding(facts: GraphFacts, outputs: TextOutputs) -> Recognized | None:
    """Recognize one long vector for a text, or one for each of its tokens."""
    if outputs.pooled and not outputs.sequences:
        output = outputs.pooled[0]
        reason = f"a vector of {output.shape[1]} numbers for a text"
        return Recognized("embed", "vector", {"embedding": output.name}, reason, NO_PICTURE)
    if outputs.sequences:
        output, pooling = outputs.sequences[0], facts.source.files.pooling
        if pooling:
            return Recognized("embed", pooling, {"tokens": output.name}, POOLING, NO_PICTURE)
        reason = f"{output.shape[2]} numbers for each token; sentence embeddings are mostly their mean"
        return Recognized("embed", "mean-pooling", {"tokens": output.name}, reason, NO_PICTURE, True)
    return None


RECOGNIZERS = Recognizers(pictures={410: recognize_embedding}, texts={130: recognize_text_embedding})

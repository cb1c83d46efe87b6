"""Recognizes rerankers of texts."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import NO_PICTURE
from edgekit.compiler.card_inference.recognized import Recognized, Recognizers, TextOutputs


def recognize_reranker(facts: GraphFacts, outputs: TextOutputs) -> Recognized | None:
    """Recognize one number for a text, which usually scores its match with another text."""
    if len(outputs.vectors) != 1 or outputs.vectors[0].shape[1] != 1:
        return None
    reason = "one number for a text, as rerankers give it"
    roles = {"score": outputs.vectors[0].name}
    return Recognized("rank", "logit", roles, reason, NO_PICTURE, True, reads_pairs=True)


RECOGNIZERS = Recognizers(texts={110: recognize_reranker})

"""Evidence on the texts of a speech model's variant."""

from __future__ import annotations

from typing import TypedDict


class Transcription(TypedDict):
    """Texts of a speech model's variant (edgekit/generate/host/pipeline/encoder_decoder/speech.py)."""

    recordings: int
    given: bool
    """Whether they are the user's recordings; a generated sound has no words to judge by."""
    seconds: float
    """Length of all of them together."""
    words: int
    """Words that the float model writes."""
    different: int
    """Words that are inserted, missing or replaced."""
    limit: float
    """Largest share of different words, where the recordings were given."""

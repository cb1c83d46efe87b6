"""The stages of an answer: what budgets, metrics and streams name their times by.

    decode          the app's own reading of a frame, e.g. of a JPEG
    prepare         the frame becomes the model's input
    infer           the engine
    decode_outputs  the outputs become the answer
    waiting         in a stream: between stages, and for the frames before

Together they are the answer's whole time, ``end_to_end``.
"""

from __future__ import annotations

STAGES = ("decode", "prepare", "infer", "decode_outputs", "waiting")
END_TO_END = "end_to_end"

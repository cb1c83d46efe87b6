"""A live sound on standard input, for ``edgekit run BUNDLE -i -``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.processing import processing
from edgekit.runtime import Session, Transcriber, TranscriptUpdate
from edgekit.tensor_spec import Array

STANDARD_INPUT = Path("-")
BLOCK_BYTES = 1 << 14
"""Most bytes read at once: half a second at 16 kHz. A pipe gives fewer, as they come."""


def run_live(bundle: Bundle, show: Callable[[str], None], **options: Any) -> dict[str, Any]:
    """Transcribe standard input: raw samples, int16 in little endian, mono, at the model's rate. It ends with
    the input, or with an interrupt (Ctrl-C).

    Args:
        show: Called with the text that was committed, as soon as it is, and "\\n" where the speaker pauses.

    Returns:
        The variant that ran, fallbacks and the whole text.

    Raises:
        UsageError: the model does not transcribe. EngineError: nothing ran.
    """
    with Session(bundle, **options) as session:
        if not processing.predicts_in_parts(session.card):
            raise UsageError("-i - reads a live sound, which only speech models transcribe; give a file")
        transcriber, shown = Transcriber(session), list[TranscriptUpdate]()

        def take(updates: Iterable[TranscriptUpdate]) -> None:
            for update in updates:
                begins = not shown or shown[-1].is_end
                shown.append(update)
                show((update.text.lstrip() if begins else update.text) + "\n" * update.is_end)

        try:
            take(transcriber.listen(samples_of(sys.stdin.buffer)))
        except KeyboardInterrupt:  # Ctrl-C also ends the program that records: the last words are due
            take(transcriber.finish())
        fallbacks = [fallback._asdict() for fallback in session.fallbacks]
        text = "".join(update.text for update in shown)
        return {"active": session.active._asdict(), "fallbacks": fallbacks, "answer": {"text": text}}


def samples_of(stream: BinaryIO) -> Iterator[Array]:
    """Yield the samples of a stream, int16 [n], as they come; the half of one at the end is dropped."""
    rest = b""
    while content := getattr(stream, "read1", stream.read)(BLOCK_BYTES):
        content = rest + content
        whole = len(content) - len(content) % 2
        rest = content[whole:]
        if whole:
            yield np.frombuffer(content, "<i2", whole // 2).astype(np.int16)

"""Live speech: the delay from the end of a word to its text, of each variant, by a clock of CPU seconds.

    edgekit build tiny.en -t ort -t openvino -t tflite --precision auto -o talk.edgekit --samples RECORDINGS
    edgekit build silero_vad.onnx -t ort --card samples/cards/silero_vad.toml -o vad.edgekit
    OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.bench_live_speech talk.edgekit vad.edgekit SOUND.wav ...

Recordings are played at their speed: a hypothesis that takes 0.3 s of CPU time ends 0.3 s after
the block that it began with, and the next one begins no earlier. The ends of words are interpolated, by their
letters, in the segments of ``predict`` by the first variant, and delays are those of the words that agree.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.sound_files import read_sound
from edgekit.processing.audio_preparation import mono
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.tasks.transcribe.words import words_of
from edgekit.runtime import Session, Transcriber
from edgekit.system.formats.plain_text import table
from edgekit.system.memory import resident_bytes
from edgekit.tensor_spec import Array

BLOCK_S = 0.1
"""Seconds of sound that arrive at once."""
RATE = 16000
SOURCE = AudioInput("sound", (1, RATE), RATE, window=RATE, hop=RATE)

Word = tuple[str, float]
"""A word, and when it ends or is shown, in seconds."""


class Played(NamedTuple):
    """A recording's words as they were shown live.

    Attributes:
        final: When each was final.
        first: When each was first shown at its place.
        cpu_s: CPU seconds of all.
    """

    final: list[Word]
    first: list[Word]
    cpu_s: float


def words_spoken(session: Session, sound: Array) -> list[Word]:
    """Return the words of a recording and their ends."""
    found: list[Word] = []
    for segment in session.predict(sound, rate=RATE, timestamps=True).segments:
        words = words_of(segment.text)
        ends = np.cumsum([len(word) + 1 for word in words])
        length_s = segment.end_s - segment.start_s
        found += [
            (word, segment.start_s + length_s * end / ends[-1]) for word, end in zip(words, ends, strict=True)
        ]
    return found


def words_shown(session: Session, voice_activity: Session, sound: Array, step_s: float) -> Played:
    """Play a recording, and return when its words were shown."""
    transcriber = Transcriber(session, voice_activity=voice_activity, clock=time.process_time, step_s=step_s)
    began_s, size = time.process_time(), round(BLOCK_S * RATE)
    final: list[Word] = []
    hypotheses: list[tuple[float, list[str]]] = []
    text = ""
    for start in range(0, len(sound) + size, size):
        block = sound[start : start + size]
        for update in transcriber.feed(block) if len(block) else transcriber.finish():
            shown_s = (start + len(block)) / RATE + update.seconds
            text += update.text
            final += [(word, shown_s) for word in words_of(text)[len(final) :]]
            hypotheses.append((shown_s, words_of(text + update.provisional)))
    first = [
        (word, min(s for s, words in hypotheses if words[index : index + 1] == [word]))
        for index, (word, _) in enumerate(final)
    ]
    return Played(final, first, time.process_time() - began_s)


def delays_of(spoken: Sequence[Word], shown: Sequence[Word]) -> list[float]:
    """Return how long after its end each word was shown, in seconds, of the words that agree."""
    matcher = SequenceMatcher(None, [w for w, _ in spoken], [w for w, _ in shown], autojunk=False)
    return [
        shown[block.b + i][1] - spoken[block.a + i][1]
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    ]


def quantiles(delays: Sequence[float]) -> str:
    """Return the median and the 95th percentile as text."""
    return "{:.2f} s, {:.2f} s".format(*np.quantile(delays, [0.5, 0.95]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_live_speech", description=__doc__)
    parser.add_argument("bundle", type=Path, help="of a speech model")
    parser.add_argument("voice_activity", type=Path, help="bundle of a voice activity detector")
    parser.add_argument("sounds", nargs="+", type=Path)
    parser.add_argument("--variants", nargs="+", help="default: all that are usable")
    parser.add_argument("--step", type=float, default=1.0, help="seconds of new sound between hypotheses")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each recording")
    options = parser.parse_args()
    sounds = []
    for path in options.sounds:
        samples, rate = read_sound(path)
        sounds.append(mono(samples, SOURCE, rate)[: round(options.seconds * RATE)])
    with Bundle.open(options.bundle) as opened:
        variants = options.variants or [variant.name for variant in opened.variants if variant.usable]
    length_s = sum(map(len, sounds)) / RATE
    rows, spoken = [], list[list[Word]]()
    for variant in variants:
        with (
            Session(options.bundle, variant=variant, strict=True, threads=1) as session,
            Session(options.voice_activity, threads=1) as voice_activity,
        ):
            spoken = spoken or [words_spoken(session, sound) for sound in sounds]
            played = [words_shown(session, voice_activity, sound, options.step) for sound in sounds]
        final, first = (
            [delay for words, shown in zip(spoken, live, strict=True) for delay in delays_of(words, shown)]
            for live in ([one.final for one in played], [one.first for one in played])
        )
        cpu = sum(one.cpu_s for one in played) / length_s
        memory = f"{resident_bytes() / 1e6:.0f} MB"
        rows.append((variant, quantiles(final), quantiles(first), f"{cpu:.2f}", str(len(final)), memory))
    count = sum(map(len, spoken))
    print(f"{len(sounds)} recordings, {length_s:.0f} s, {count} words; a step of {options.step:g} s")
    heads = ("variant", "final p50, p95", "provisional p50, p95", "CPU s a s", "words that agree", "memory")
    print("\n".join(table(heads, rows)))


if __name__ == "__main__":
    main()

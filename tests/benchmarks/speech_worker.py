"""One engine of bench_speech.py: transcribes a sound each time a line comes, and prints what it took.

    python speech_worker.py ENGINE MODEL SOUND.npy THREADS

ENGINE is ``faster-whisper:int8`` (or another of its types), ``whisper.cpp``, or else a variant of the bundle
MODEL. Each line that it prints is JSON: ``cpu_s`` of the process, ``wall_s``, ``text``, and of EdgeKit
``encoder_s``, the part of ``cpu_s`` until the decoder starts. It runs in an environment without EdgeKit too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

RATE = 16000
PARTS: dict[str, float] = {}


def opened(engine: str, model: str, threads: int) -> Callable[[Any], str]:
    """Load an engine; return a function from samples, float32 [n] at RATE, to their text."""
    kind, _, compute = engine.partition(":")
    if kind == "faster-whisper":
        from faster_whisper import WhisperModel  # type: ignore[import-not-found]

        whisper = WhisperModel(model, device="cpu", compute_type=compute, cpu_threads=threads, num_workers=1)
        settings = {"beam_size": 1, "temperature": 0, "condition_on_previous_text": False}
        return lambda x: "".join(
            segment.text for segment in whisper.transcribe(x, without_timestamps=True, **settings)[0]
        )
    if kind == "whisper.cpp":
        from pywhispercpp.model import Model  # type: ignore[import-not-found]

        quiet = {"print_progress": False, "print_realtime": False, "redirect_whispercpp_logs_to": None}
        native = Model(model, n_threads=threads, no_timestamps=True, **quiet)
        return lambda x: "".join(segment.text for segment in native.transcribe(x))
    from edgekit.generate.device.encoder_decoder import EncoderDecoderRunner
    from edgekit.runtime import Session

    encode = EncoderDecoderRunner._encode

    def timed(runner: EncoderDecoderRunner, source: Any) -> None:
        begun = time.process_time()
        encode(runner, source)
        PARTS["encoder_s"] = time.process_time() - begun

    setattr(EncoderDecoderRunner, "_encode", timed)  # noqa: B010
    session = Session(model, variant=engine, threads=threads)
    return lambda x: str(session.predict(x, rate=RATE, timestamps=False).text)


def main() -> None:
    engine, model, sound, threads = sys.argv[1:]
    samples, transcribe = np.load(sound), opened(engine, model, int(threads))
    transcribe(samples)  # the first run also prepares
    print(json.dumps({"ready": engine}), flush=True)
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        text = transcribe(samples)
        row = {
            **PARTS,
            "cpu_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - wall,
            "text": text,
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

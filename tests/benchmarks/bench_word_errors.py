"""Word error rate of a speech bundle's variants, on recordings whose words are known.

    python -m tests.benchmarks.bench_word_errors talk.edgekit FOLDER

FOLDER has NAME.wav and NAME.txt, the words in it. Texts are compared in small letters and without
punctuation, by the least edits of words (Levenshtein, 1966). Each variant runs on one thread; "points" is its
rate less that of the first variant, in percent of the words, with a 95 % interval over resampled recordings
(Efron, 1979).

Without recordings, a synthesizer reads texts, e.g. Debian's flite and fortunes:

    flite_cmu_us_slt -t "The words" -o 000.wav
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.processing.sound_files import read_sound
from edgekit.processing.transcripts.words import word_edits, words_of
from edgekit.runtime import Session
from edgekit.system.formats.plain_text import table

RESAMPLES = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_word_errors", description=__doc__)
    parser.add_argument("bundle", type=Path, help="of a speech model")
    parser.add_argument("folder", type=Path, help="NAME.wav and NAME.txt")
    parser.add_argument("--variants", nargs="+", help="default: all that are usable")
    options = parser.parse_args()
    pairs = [
        (path, path.with_suffix(".txt").read_text("utf-8")) for path in sorted(options.folder.glob("*.wav"))
    ]
    if not pairs:
        parser.error(f"{options.folder} has no .wav files")
    with Bundle.open(options.bundle) as opened:
        variants = options.variants or [variant.name for variant in opened.variants if variant.usable]
    counts = np.array([len(words_of(text)) for _, text in pairs])
    drawn = np.random.default_rng(0).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    rows: list[tuple[str, ...]] = []
    first = np.zeros(len(pairs))
    for variant in variants:
        with Session(options.bundle, variant=variant, strict=True, threads=1) as session:
            edits = np.array([word_edits(text, transcribed(session, path)) for path, text in pairs])
        first = edits if not rows else first
        differences = 100 * (edits - first)[drawn].sum(1) / counts[drawn].sum(1)
        low, high = np.quantile(differences, [0.025, 0.975])
        rate, points = 100 * edits.sum() / counts.sum(), 100 * (edits - first).sum() / counts.sum()
        rows.append(
            (variant, str(edits.sum()), f"{rate:.2f} %", f"{points:+.2f} ({low:+.2f} to {high:+.2f})")
        )
        print(rows[-1], flush=True)
    print(f"{len(pairs)} recordings, {counts.sum()} words")
    print("\n".join(table(("variant", "edits", "word error rate", "points"), rows)))


def transcribed(session: Session, path: Path) -> str:
    """Return the text of a WAV file."""
    samples, rate = read_sound(path)
    return str(session.predict(samples, rate=rate).text)


if __name__ == "__main__":
    main()

"""Sample sets of the scoreboard: files to calibrate with, and files that no maker has seen."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from edgekit.compiler.evaluate.samples import spread
from edgekit.compiler.evaluate.text_files import text_lines
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.errors import SampleError
from edgekit.processing import load_card
from tests.benchmarks.packaged_models import SHARED
from tests.benchmarks.real_inputs import CARDS, spoken_words, write_lines, write_pages, write_words

CALIBRATION, HELD_OUT = 64, 64
PHOTOGRAPHS = SHARED / "data" / "coco128"
DOCUMENTS = Path(__file__).resolve().parents[3] / "docs"
Files = tuple[Sequence[Path], Sequence[Path]]
"""To calibrate with, and held out."""


def photographs(part: str) -> list[Path]:
    return sorted((PHOTOGRAPHS / part / "images").glob("*.jpg"))


def _photographs(made: Path) -> Files:
    return spread(photographs("train"), CALIBRATION), spread(photographs("val"), HELD_OUT)


def _imagenet(made: Path) -> Files:
    held_out = spread(sorted((SHARED / "data" / "imagenet500").glob("*.jpg")), 200)
    return spread(photographs("train"), CALIBRATION), held_out


def _people(made: Path, of_head: bool = False) -> Files:
    """Squares of at least 64 px around the persons of COCO's labels, or around the upper part of these."""
    found = []
    for part, limit in (("train", CALIBRATION), ("val", HELD_OUT)):
        cuts = []
        for path in photographs(part):
            labels = PHOTOGRAPHS / part / "labels" / f"{path.stem}.txt"
            rows = labels.read_text("utf-8").splitlines() if labels.is_file() else []
            for row in rows:
                number, *box = row.split()
                if number == "0":
                    cuts.append((path, tuple(map(float, box))))
        paths: list[Path] = []
        for path, (x, y, w, h) in cuts:
            with Image.open(path) as opened:
                picture = ImageOps.exif_transpose(opened).convert("RGB")
            w, h = w * picture.width, h * picture.height
            side = min(w, h) if of_head else 1.2 * max(w, h)
            x, y = x * picture.width, y * picture.height
            top = y - h / 2 if of_head else y - side / 2
            if side >= 64:
                cut = picture.crop((round(x - side / 2), round(top), round(x + side / 2), round(top + side)))
                paths.append(made / f"{part}-{len(paths):03}.png")
                cut.save(paths[-1])
        found.append(spread(paths, limit))
    return found[0], found[1]


def _lines(made: Path) -> Files:
    write_lines(made, CALIBRATION + HELD_OUT)
    files = sorted(made.glob("*.png"))
    return files[:CALIBRATION], files[CALIBRATION:]


def _pages(made: Path) -> Files:
    """White pages of drawn lines, turned by 0, 90, 180 and 270 degrees."""
    _lines(made)
    rng = np.random.default_rng(9)
    lines, files = sorted(made.glob("*.png")), []
    for number in range(CALIBRATION + HELD_OUT):
        page = Image.new("RGB", (480, 640), "white")
        for row in range(int(rng.integers(4, 12))):
            with Image.open(lines[int(rng.integers(len(lines)))]) as line:
                page.paste(line, (int(rng.integers(10, 60)), 20 + 50 * row))
        files.append(made / f"page-{number:03}.png")
        page.rotate(90 * (number % 4), expand=True).save(files[-1])
    return files[:CALIBRATION], files[CALIBRATION:]


def _sentences(made: Path) -> Files:
    """Sentences of these documents, in the order of their digests."""
    text = " ".join(path.read_text("utf-8") for path in sorted(DOCUMENTS.glob("*.md")))
    found = {" ".join(s.split()) for s in re.findall(r"[A-Z][a-z][^.|`\n]{30,200}\.(?=\s)", text)}
    chosen = sorted(found, key=lambda s: hashlib.sha256(s.encode()).hexdigest())[: CALIBRATION + HELD_OUT]
    path = made / "sentences.txt"
    path.write_text("\n".join(chosen), "utf-8")
    lines = text_lines(path)
    return lines[:CALIBRATION], lines[CALIBRATION:]


def _texts_in_pictures(made: Path) -> Files:
    """Photographs with lines of text put on them."""
    every = [*photographs("train"), *photographs("val")]
    write_pages(made, every, CALIBRATION + HELD_OUT)
    files = sorted(made.glob("*.png"))
    return files[:CALIBRATION], files[CALIBRATION:]


def _words(made: Path) -> Files:
    """Ten spoken words in several voices, every second one held out."""
    espeak = shutil.which("espeak-ng")
    if espeak is None:
        raise SampleError("the samples are spoken by espeak-ng, which is not installed (Debian: espeak-ng)")
    files = [path for path, _ in write_words(made, espeak)]
    return spread(files[::2], CALIBRATION), spread(files[1::2], HELD_OUT)


def _voices(made: Path) -> Files:
    """Windows of spoken words with the states that Silero VAD has there, and as many of the silence after."""
    espeak = shutil.which("espeak-ng")
    if espeak is None:
        raise SampleError("the samples are spoken by espeak-ng, which is not installed (Debian: espeak-ng)")
    card = load_card(CARDS / "silero_vad_16k_sequence.toml")
    model = Reference(open_model(SHARED / "models" / "silero_vad_16k_sequence.onnx", card.shapes()))
    rng, files = np.random.default_rng(6), []
    for number, (_, _, sound) in enumerate(spoken_words(espeak)):
        noisy = np.pad(sound / 2**15, 64) + rng.normal(0, 0.003, sound.size + 128).astype(np.float32)
        feeds = {"h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}
        at = [int(rng.integers(8, 20)), int(rng.integers(22, 31))]
        for window in range(max(at) + 1):
            feeds["input"] = noisy[None, 512 * window : 512 * window + 576].astype(np.float32)
            if window in at:
                files.append(made / f"{number:03}-{window:02}.npz")
                np.savez(files[-1], allow_pickle=False, **feeds)
            answer = model.run(feeds)
            feeds = {"h": answer["hn"], "c": answer["cn"]}
    return spread(files[::2], CALIBRATION), spread(files[1::2], HELD_OUT)


SAMPLES: Mapping[str, Callable[[Path], Files]] = {
    "photographs": _photographs,
    "imagenet": _imagenet,
    "people": _people,
    "heads": lambda made: _people(made, of_head=True),
    "lines": _lines,
    "pages": _pages,
    "texts in pictures": _texts_in_pictures,
    "words": _words,
    "sentences": _sentences,
    "voices": _voices,
}

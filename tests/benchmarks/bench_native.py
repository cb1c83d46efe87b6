"""libedgekit beside OpenCV's C++ and EdgeKit's Python: preparation of pictures and decoding, on one thread.

    python tests/benchmarks/bench_native.py [--rounds 40] [--library build/libedgekit.so]

Each row runs the three in turns and prints the lower quartile of their processor time for one call. OpenCV is
opencv-python, called with ``cv2.setNumThreads(1)``: its resize, ``copyMakeBorder`` and ``blobFromImage``, and
its non-maximum suppression. It has no decoder of a network's outputs, so those rows select and convert boxes
by numpy before ``cv2.dnn.NMSBoxesBatched``. Values differ: OpenCV does not round the blob as EdgeKit does,
and its area filter is not Pillow's. Without ``--library`` the library is compiled as it is shipped.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.native import build
from edgekit.processing.card import parse_card
from edgekit.processing.processing import decode, prepare
from edgekit.tensor_spec import Array, Json
from tests.native.cases import Case
from tests.native.equality import specs_of, write_bundle
from tests.native.library import NativeBundle, NativePreparation, library, picture, tensor

FRAME = np.random.default_rng(0).integers(0, 256, (480, 640, 3)).astype(np.uint8)
LEAST_S = 0.004
"""Processor time of a measurement; short calls are repeated."""
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


class Row(NamedTuple):
    """One comparison: name, and the three calls in the order of the table."""

    name: str
    calls: dict[str, Callable[[], Any]]


def image(side: int, **changes: Json) -> dict[str, Json]:
    """Return an input of a card."""
    shape = [1, side, side, 3] if changes.get("layout") == "NHWC" else [1, 3, side, side]
    entry = {"kind": "image", "shape": shape, "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    return {**entry, "dtype": "float32", **changes}


def letterboxed(cv2: Any, side: int, centred: bool, interpolation: int) -> Array:
    """Return the frame in a square, as a card's letterbox places it."""
    gain = min(side / FRAME.shape[0], side / FRAME.shape[1])
    width, height = int(FRAME.shape[1] * gain), int(FRAME.shape[0] * gain)
    small = cv2.resize(FRAME, (width, height), interpolation=interpolation)
    left, top = ((side - width) // 2, (side - height) // 2) if centred else (0, 0)
    right, below = side - width - left, side - height - top
    made: Array = cv2.copyMakeBorder(
        small, top, below, left, right, cv2.BORDER_CONSTANT, value=(114, 114, 114)
    )
    return made


def opencv_blob(cv2: Any, side: int, entry: dict[str, Any]) -> Callable[[], Array]:
    """Return OpenCV's calls for an input."""
    how = cv2.INTER_AREA if entry.get("antialias") else cv2.INTER_LINEAR
    scale = tuple(1 / value for value in entry.get("std", [1.0]))
    params = cv2.dnn.Image2BlobParams()
    params.scalefactor = scale if len(scale) == 3 else (scale[0],) * 3
    params.mean = tuple(entry.get("mean", [0.0, 0.0, 0.0]))
    params.swapRB = entry["colour"] == "BGR"  # the frame is RGB
    plain = "std" not in entry and "mean" not in entry

    def run() -> Array:
        if entry["resize"] == "letterbox":
            small = letterboxed(cv2, side, entry.get("place") == "center", how)
        else:
            small = cv2.resize(FRAME, (side, side), interpolation=how)
        if entry["dtype"] == "uint8":
            return small
        if plain or len(scale) == 1:
            return cv2.dnn.blobFromImage(small, scale[0], swapRB=params.swapRB)  # type: ignore[no-any-return]
        return cv2.dnn.blobFromImageWithParams(small, params)  # type: ignore[no-any-return]

    return run


def preparation_row(cv2: Any, name: str, side: int, entry: dict[str, Json], folder: Path) -> Row:
    """Return the row of a card."""
    task = {"kind": "classify", "decode": "logits", "outputs": {"scores": "y"}}
    case = Case(
        {"title": "x", "inputs": {"x": entry}, "task": task}, FRAME, "rgb", np.zeros((1, 3), np.float32)
    )
    write_bundle(case, folder / f"{name} {side}".replace("/", "-"))
    card = parse_card(case.card, *specs_of(case))
    bundle = NativeBundle(folder / f"{name} {side}".replace("/", "-"))
    preparation, frame = NativePreparation(bundle), picture(FRAME, "rgb")
    run, handle, at = library().edgekit_prepare, preparation.handle, ctypes.byref(frame)
    calls = {
        "libedgekit": lambda: run(handle, at),
        "Python": lambda: prepare(card, FRAME, "rgb"),
        "OpenCV": opencv_blob(cv2, side, entry),
    }
    return Row(f"{name}, {side}", calls)


def yolox_output(side: int, objects: int) -> Array:
    """Return an output [1, cells, 85] in which some cells have objects, in groups of eight that overlap."""
    rng = np.random.default_rng(1)
    cells = sum((side // stride) ** 2 for stride in (8, 16, 32))
    output = rng.uniform(0, 0.05, (1, cells, 85)).astype(np.float32)
    output[..., 2:4] = 1.5
    chosen = np.unique(rng.integers(0, cells - 8, objects // 8)[:, None] + np.arange(8))
    output[0, chosen, 4] = rng.uniform(0.5, 1, len(chosen))
    output[0, chosen, 5 + rng.integers(0, 80, len(chosen))] = rng.uniform(0.7, 1, len(chosen))
    return output


def opencv_yolox(cv2: Any, output: Array, side: int) -> Callable[[], Any]:
    """Return the same decoder by numpy and OpenCV's suppression."""
    grids, strides = [], []
    for stride in (8, 16, 32):
        x, y = np.meshgrid(np.arange(side // stride), np.arange(side // stride))
        grids.append(np.stack([x.ravel(), y.ravel()], 1))
        strides.append(np.full((x.size, 1), stride))
    grid, step = np.concatenate(grids).astype(np.float32), np.concatenate(strides).astype(np.float32)

    def run() -> Any:
        rows = output[0]
        kept = np.flatnonzero(rows[:, 4] > 0.3)
        near = rows[kept]
        scores = near[:, 5:] * near[:, 4:5]
        classes = scores.argmax(1)
        best = scores[np.arange(len(kept)), classes]
        held = best > 0.3
        near, kept, best, classes = near[held], kept[held], best[held], classes[held]
        centres, sizes = (near[:, :2] + grid[kept]) * step[kept], np.exp(near[:, 2:4]) * step[kept]
        boxes = np.concatenate([centres - sizes / 2, sizes], 1)
        return cv2.dnn.NMSBoxesBatched(boxes, best, classes, 0.3, 0.5, top_k=100)

    return run


def decoding_row(
    name: str, output: Array, task: dict[str, Json], folder: Path, opencv: Callable[[], Any]
) -> Row:
    """Return the row of a task's decoder, on an input of 416 x 416."""
    card = {"title": "x", "inputs": {"x": image(416)}, "task": task}
    case = Case(card, FRAME, "rgb", output)
    write_bundle(case, folder / name)
    parsed = parse_card(card, *specs_of(case))
    placed = prepare(parsed, FRAME, "rgb")[1]
    bundle = NativeBundle(folder / name)
    made = bundle.prepare(FRAME, "rgb")[1]
    given = tensor("y", output)
    at, place = ctypes.byref(given), ctypes.byref(made)
    run, free, handle = library().edgekit_decode, library().edgekit_free_prediction, bundle.handle
    calls = {
        "libedgekit": lambda: free(run(handle, at, 1, place)),
        "Python": lambda: decode(parsed, {"y": output}, placed),
        "OpenCV": opencv,
    }
    return Row(name, calls)


def rows_of(cv2: Any, folder: Path) -> list[Row]:
    """Return all comparisons."""
    yolox: dict[str, Json] = {"colour": "BGR", "resize": "letterbox", "pad": 114}
    yolov8: dict[str, Json] = {
        "resize": "letterbox", "place": "center", "pad": 114, "rounding": "nearest", "std": [255.0] * 3,
    }  # fmt: skip
    normalized: dict[str, Json] = {"mean": MEAN, "std": STD}
    kinds: list[tuple[str, dict[str, Json], tuple[int, ...]]] = [
        ("letterbox, BGR", yolox, (320, 416, 640)),
        ("letterbox, / 255", yolov8, (320, 416, 640)),
        ("stretch, mean and std", normalized, (320, 416, 640)),
        ("stretch, uint8 NHWC", {"layout": "NHWC", "dtype": "uint8"}, (320, 416, 640)),
        ("stretch, area, mean and std", {**normalized, "antialias": True}, (320, 416)),
        ("letterbox, area, BGR", {**yolox, "antialias": True}, (320, 416)),
    ]
    rows = [
        preparation_row(cv2, name, side, image(side, **changes), folder)
        for name, changes, sides in kinds
        for side in sides
    ]
    output = yolox_output(416, 400)
    task: dict[str, Json] = {"kind": "detect", "decode": "yolox", "outputs": {"predictions": "y"}}
    rows.append(decoding_row("YOLOX, 3549 cells", output, task, folder, opencv_yolox(cv2, output, 416)))
    few = yolox_output(416, 24)
    rows.append(decoding_row("YOLOX, few objects", few, task, folder, opencv_yolox(cv2, few, 416)))
    ssd = np.random.default_rng(2).uniform(0, 1, (1, 100, 6)).astype(np.float32)
    ends: dict[str, Json] = {**task, "decode": "end2end", "normalized": True}
    boxes, scores = ssd[0, :, :4], np.ascontiguousarray(ssd[0, :, 4])
    rows.append(
        decoding_row(
            "SSD with NMS in the model", ssd, ends, folder,
            lambda: cv2.dnn.NMSBoxes(boxes * np.float32(416), scores, 0.25, 1.0, top_k=300),
        )
    )  # fmt: skip
    logits = np.random.default_rng(3).normal(0, 3, (1, 1000)).astype(np.float32)
    classes: dict[str, Json] = {"kind": "classify", "decode": "logits", "outputs": {"scores": "y"}}

    def softmax() -> Array:
        powers = np.exp(logits - logits.max())
        best = np.argpartition(powers[0], -5)[-5:]
        return best[np.argsort(powers[0, best])] * (1 / powers.sum())  # type: ignore[no-any-return]

    rows.append(decoding_row("classifier, 1000 logits", logits, classes, folder, softmax))
    return rows


def time_us(call: Callable[[], Any], repeats: int) -> float:
    """Return the processor time of a call in microseconds."""
    began = time.process_time_ns()
    for _ in range(repeats):
        call()
    return (time.process_time_ns() - began) / repeats / 1000


def measure(row: Row, rounds: int) -> dict[str, float]:
    """Run the calls in turns; return the lower quartile of each in microseconds."""
    repeats = {
        name: max(1, int(LEAST_S * 1e6 / max(1.0, time_us(call, 3)))) for name, call in row.calls.items()
    }
    times: dict[str, list[float]] = {name: [] for name in row.calls}
    for _ in range(rounds):
        for name, call in row.calls.items():
            times[name].append(time_us(call, repeats[name]))
    return {name: float(np.quantile(values, 0.25)) for name, values in times.items()}


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--library", type=Path, help="a compiled library to measure")
    parser.add_argument("--only", default="", help="measure rows with this text in their name")
    options = parser.parse_args()
    import cv2

    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = options.library or build.compile_library(folder / "build")
        os.environ["LIBEDGEKIT"] = str(path)
        print("| 640x480 to | libedgekit, us | Python, us | OpenCV, us | the faster of both / libedgekit |")
        print("|---|---|---|---|---|", flush=True)
        for row in rows_of(cv2, folder):
            if options.only not in row.name:
                continue
            found = measure(row, options.rounds)
            ratio = min(found["Python"], found["OpenCV"]) / found["libedgekit"]
            figures = " | ".join(
                f"{value:.0f}" if value >= 10 else f"{value:.1f}" for value in found.values()
            )
            print(f"| {row.name} | {figures} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()

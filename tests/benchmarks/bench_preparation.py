"""CPU time and page faults of preparing a frame, against the chain that an app writes with OpenCV.

    python tests/benchmarks/bench_preparation.py PHOTOS             # a folder with photographs in it
    python tests/benchmarks/bench_preparation.py PHOTOS --bytes     # equal bytes on each of them, a digest

Goals: with ``cv2`` imported at most .9 of the chain, no page fault, and the chain's bytes on all photographs.
The digest is the same on every processor. The C library is told to keep freed memory, so that the chain has
no page faults either.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from edgekit.processing.card import parse_card
from edgekit.processing.image_preparation import prepare_image
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Array

SCALE = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
CARDS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "416 letterbox": (416, {"colour": "BGR", "resize": "letterbox", "pad": 114}),
    "640 letterbox, / 255": (
        640,
        {"colour": "RGB", "resize": "letterbox", "pad": 114, "place": "center", "std": [255.0] * 3},
    ),
    "224 stretch, mean and std": (224, {"colour": "RGB", "resize": "stretch", **SCALE}),
    "224 crop, mean and std": (224, {"colour": "RGB", "resize": "center-crop", "crop": 0.875, **SCALE}),
}
SIZES = ((320, 240), (640, 480), (1280, 720), (1920, 1080), (3840, 2160))
GOAL = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path, help="a folder of photographs")
    parser.add_argument("--bytes", action="store_true", help="compare bytes instead of times")
    parser.add_argument("--rounds", type=int, default=200, help="rounds in turns; the least of each counts")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    if options.bytes:
        compare_bytes(options.photos)
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
    photo = next(photographs(options.photos))
    print("card                        frame         chain ms   with cv2   numpy alone   faults of each")
    for card in CARDS:
        for width, height in SIZES:
            frame = cv2.resize(photo, (width, height), interpolation=cv2.INTER_CUBIC)
            print(row(card, frame, options.rounds), flush=True)


def photographs(folder: Path) -> Iterator[Array]:
    for path in sorted(folder.rglob("*.jpg")):
        frame: Any = cv2.imread(str(path), cv2.IMREAD_COLOR)
        yield frame


def image_of(card: str) -> ImageInput:
    side, keys = CARDS[card]
    image = {"kind": "image", "shape": [1, 3, side, side], "layout": "NCHW", **keys}
    task = {"kind": "classify", "decode": "logits", "labels": ["a", "b"], "outputs": {"scores": "o"}}
    return parse_card({"title": card, "inputs": {"images": image}, "task": task}).image_input()


def chain(image: ImageInput, frame: Array) -> Array:
    """Prepare a frame as an app does: resize, border, colours, planes, float, mean and std."""
    height, width = frame.shape[:2]
    if image.resize == "center-crop":
        side = int(image.crop * min(width, height))
        left, top = (width - side) // 2, (height - side) // 2
        frame, width, height = frame[top : top + side, left : left + side], side, side
    small = (image.width, image.height)
    if image.resize == "letterbox":
        longest = max(width, height)
        small = (width * image.width // longest, height * image.height // longest)
    pixels = cv2.resize(frame, small)
    if small != (image.width, image.height):
        across, down = image.width - small[0], image.height - small[1]
        left, top = (across // 2, down // 2) if image.place == "center" else (0, 0)
        border = (top, down - top, left, across - left)
        pixels = cv2.copyMakeBorder(pixels, *border, cv2.BORDER_CONSTANT, value=[image.pad] * 3)
    if image.colour == "RGB":
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    values: Array = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None].astype(np.float32))
    if not image.plain:
        values -= np.array(image.mean, np.float32)[:, None, None]
        values /= np.array(image.std, np.float32)[:, None, None]
    return values


def without_opencv(run: Callable[[], Array]) -> Array:
    """Run as in an app that has not imported OpenCV."""
    module = sys.modules.pop("cv2")
    try:
        return run()
    finally:
        sys.modules["cv2"] = module


def row(card: str, frame: Array, rounds: int) -> str:
    image = image_of(card)
    prepare = lambda: prepare_image(image, frame, "bgr")  # noqa: E731
    ways: list[Callable[[], Array]] = [
        lambda: chain(image, frame), prepare, lambda: without_opencv(prepare),
    ]  # fmt: skip
    for _ in range(3):  # OpenCV is used from the second frame of a size on
        if len({way().tobytes() for way in ways}) != 1:
            sys.exit(f"error: {card}: bytes differ at {frame.shape[1]} x {frame.shape[0]}")
    costs: list[list[float]] = [[] for _ in ways]
    faults: list[list[int]] = [[] for _ in ways]
    for _ in range(rounds):
        for way, cost, mapped in zip(ways, costs, faults, strict=True):
            way()  # with this way's memory in the cache
            before, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time_ns()
            way()
            cost.append((time.process_time_ns() - began) / 1e6)
            mapped.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    chain_ms, *others = map(min, costs)
    ratios = [other / chain_ms for other in others]
    late = "   over the goal" if ratios[0] > GOAL else ""
    middle = ", ".join(f"{np.median(values):.0f}" for values in faults)
    size = f"{frame.shape[1]} x {frame.shape[0]}"
    return f"{card:26}  {size:12}  {chain_ms:8.3f}   {ratios[0]:8.2f}   {ratios[1]:11.2f}   {middle}{late}"


def compare_bytes(folder: Path) -> None:
    frames, digest = list(photographs(folder)), hashlib.sha256()
    for frame in frames:
        digest.update(frame.tobytes())
    print(f"{len(frames)} photographs, OpenCV {cv2.__version__}, {digest.hexdigest()[:16]}")
    for card in CARDS:
        image, equal, digest = image_of(card), [0, 0], hashlib.sha256()
        for frame in frames:
            found = [prepare_image(image, frame, "bgr") for _ in range(2)]
            alone = without_opencv(lambda: prepare_image(image, frame, "bgr"))  # noqa: B023
            expected = chain(image, frame)
            equal[0] += all(np.array_equal(each, alone) for each in found)
            equal[1] += np.array_equal(alone, expected)
            digest.update(alone.tobytes())
        print(f"{card}: with cv2 as without: {equal[0]}; as the chain: {equal[1]}; {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    main()

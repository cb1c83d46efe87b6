"""Time of what is done at every pixel, or with every entry of a gallery; least of interleaved runs, in ms.

    PYTHONPATH=. OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_dense.py

Masks: our class map of a frame beside OpenCV's resizing of all scores and numpy's argmax; scores are smooth
noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np

from edgekit.processing.frame_sampling import linear_to_frame
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.tasks.segment.decode import SegmentOptions, segment_scores
from edgekit.runtime.gallery import Gallery

Array = Any
MASKS = (  # classes, rows and columns of the scores, rows and columns of the frame
    (2, 256, 256, 720, 1280),
    (21, 65, 65, 480, 640),
    (21, 513, 513, 480, 640),
    (19, 128, 256, 1024, 2048),
    (150, 128, 128, 512, 683),
)
GALLERIES = ((1_000, 128), (10_000, 512), (100_000, 512))


def main() -> None:
    rng = np.random.default_rng(0)
    cv2.setNumThreads(1)
    print("scores          frame       ours    OpenCV + argmax   pixels that agree")
    for classes, rows, columns, height, width in MASKS:
        noise = rng.normal(0, 1, (classes, rows, columns)).astype(np.float32)
        scores = np.stack([cv2.GaussianBlur(plane, (0, 0), columns / 32) for plane in noise])
        placed = ImagePlacement(width, height, columns * 4, rows * 4, columns * 4 / width, rows * 4 / height)
        compare_masks(scores, placed)
    plane = rng.random((1, 256, 256)).astype(np.float32)
    placed = ImagePlacement(1280, 720, 256, 256, 0.2, 256 / 720)
    ours, theirs = least(
        lambda: linear_to_frame(plane, placed),
        lambda: cv2.resize(plane[0], (1280, 720), interpolation=cv2.INTER_LINEAR),
    )
    print(f"one plane of 256x256 at 1280x720: ours {ours:.2f}, OpenCV {theirs:.2f}")
    for count, size in GALLERIES:
        gallery = Gallery()
        for index, vector in enumerate(rng.normal(0, 1, (count, size)).astype(np.float32)):
            gallery.add(str(index), vector)
        query = rng.normal(0, 1, size)
        [took] = least(partial(gallery.search, query))
        print(f"search among {count:,} x {size}: {took:.2f}")


def compare_masks(scores: Array, placed: ImagePlacement) -> None:
    width, height = placed.frame_width, placed.frame_height

    def origin() -> Array:
        large = [cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR) for plane in scores]
        return np.stack(large).argmax(axis=0)

    def ours() -> Array:
        return segment_scores({"scores": scores[None]}, SegmentOptions(), placed).classes

    fast, slow = least(ours, origin)
    shape = "x".join(map(str, scores.shape))
    print(f"{shape:14}  {width}x{height:<6} {fast:6.1f}  {slow:14.1f}   {(ours() == origin()).mean():18.6f}")


def least(*calls: Callable[[], Any], runs: int = 7) -> list[float]:
    took = [float("inf")] * len(calls)
    for _ in range(runs):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call()
            took[index] = min(took[index], (time.perf_counter() - start) * 1e3)
    return took


if __name__ == "__main__":
    main()

"""Time to decode a detector's output, and of the same by plain numpy as it is often written by hand.

    python tests/benchmarks/bench_decode_time.py

yolov8's [1, 84, 8400] at 640 x 640: background scores below 0.05, and 60 things with 8 likely boxes each.
Both give the same boxes. CPU time of one thread, minimum and median of interleaved calls.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.tasks.detect.yolov8 import YoloOptions, detect_yolov8

Array = npt.NDArray[Any]
PLACED = ImagePlacement(640, 480, 640, 640, 1, 1, 0, 80)


def likely_output(things: int = 60, each: int = 8) -> Array:
    rng = np.random.default_rng(0)
    output = rng.uniform(0, 0.05, (1, 84, 8400)).astype(np.float32)
    output[0, :4] = rng.uniform(10, 600, (4, 8400))
    columns = rng.choice(8400, (things, each), replace=False)
    for row in columns:
        box, kind = np.concatenate([rng.uniform(100, 500, 2), rng.uniform(20, 150, 2)]), rng.integers(80)
        output[0, :4, row] = box + rng.normal(0, 2, (each, 4))
        output[0, 4 + kind, row] = rng.uniform(0.3, 0.95, each)
    return output


def ours(output: Array) -> Array:
    return detect_yolov8({"predictions": output}, YoloOptions(), PLACED).boxes


def by_hand(output: Array) -> Array:
    """Transpose, argmax and max of all rows, then NMS with a loop over what is left, class by class."""
    rows = np.squeeze(output).T
    scores, classes = rows[:, 4:].max(axis=1), rows[:, 4:].argmax(axis=1)
    keep = scores > 0.25
    rows, scores, classes = rows[keep], scores[keep], classes[keep]
    x, y, w, h = rows[:, :4].T
    boxes = np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], axis=1)
    kept = []
    for kind in np.unique(classes):
        order = np.flatnonzero(classes == kind)
        order = order[np.argsort(-scores[order])]
        while len(order):
            best, order = order[0], order[1:]
            kept.append(best)
            low = np.maximum(boxes[best, :2], boxes[order, :2])
            high = np.minimum(boxes[best, 2:], boxes[order, 2:])
            shared = np.clip(high - low, 0, None).prod(axis=1)
            areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
            order = order[shared / (areas[best] + areas[order] - shared) <= 0.7]
    kept.sort(key=lambda one: -scores[one])
    found = boxes[kept[:300]] - [0, 80, 0, 80]
    clipped: Array = np.clip(found, 0, [640, 480, 640, 480])
    return clipped


def main() -> None:
    output = likely_output()
    np.testing.assert_allclose(ours(output), by_hand(output), atol=1e-3)
    times: dict[str, list[float]] = {"ours": [], "by hand": []}
    for _ in range(200):
        for name, decode in (("ours", ours), ("by hand", by_hand)):
            start = time.thread_time()
            decode(output)
            times[name].append((time.thread_time() - start) * 1000)
    print(f"{len(ours(output))} boxes of [1, 84, 8400]")
    for name, taken in times.items():
        print(f"{name:8} {min(taken):6.2f} ms   median {np.median(taken):6.2f} ms")


if __name__ == "__main__":
    main()

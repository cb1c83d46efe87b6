"""Small outputs with their own project's answers, for tests/processing/tasks/test_golden.py.

Networks of 64 x 64 pixels and 6 classes, on two small frames: the whole file of a network is some kilobytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from edgekit.processing import processing
from edgekit.processing.card import parse_card
from tests.benchmarks.decoder_origins import mediapipe_models, transformers_models, ultralytics_models
from tests.benchmarks.decoder_origins.origin import Array, Origin

Runner = Callable[[Path], Callable[[dict[str, Array]], dict[str, Array]]]
NETWORKS = (
    "yolov8n", "yolo11n", "yolov10n", "yolov8n-seg", "yolo26n-seg", "yolov8n-pose", "yolo26n-pose",
    "yolov8n-obb", "yolo26n-obb",
)  # fmt: skip
FRAMES = ((96, 64), (61, 80))
"""Width and height: at the input's scale, and so that the fitted side is rounded."""
SIZE, CLASSES = 64, 6


def write(folder: Path, models: Path, photos: Sequence[Array], runner: Runner) -> None:
    """A file for each network."""
    folder.mkdir(parents=True, exist_ok=True)
    for origin in _origins(models, photos):
        run, card = runner(origin.model), parse_card(origin.card)
        saved: dict[str, Array] = {"task": np.array(json.dumps(origin.card))}
        for number, photo in enumerate(_frames(origin, photos)):
            feeds, _ = processing.prepare(card, photo, "bgr")
            outputs, answer = run(feeds), origin.answer(photo)
            assert card.task is not None
            saved |= {f"{number}.outputs.{name}": outputs[name] for name in card.task.outputs.values()}
            saved[f"{number}.frame"] = np.array(photo.shape[1::-1])
            saved[f"{number}.places"] = answer.places.astype(np.float32)
            saved[f"{number}.scores"] = np.asarray(answer.scores, np.float32)
            saved[f"{number}.classes"] = answer.classes.astype(np.int16)
            if answer.more_scores is not None:
                saved[f"{number}.more_scores"] = answer.more_scores.astype(np.float32)
            if answer.masks is not None:
                saved[f"{number}.masks"] = np.packbits(answer.masks)
            print(f"{origin.name:22} {len(answer.scores):4} found in {photo.shape[1]}x{photo.shape[0]}")
        np.savez_compressed(folder / f"{origin.name.replace(' ', '_')}.npz", allow_pickle=False, **saved)


def _origins(models: Path, photos: Sequence[Array]) -> Iterator[Origin]:
    yield from ultralytics_models.origins(models, photos, SIZE, NETWORKS, CLASSES)
    yield from transformers_models.origins(models, ())
    yield from (origin for origin in mediapipe_models.origins() if "short" in origin.name)


def _frames(origin: Origin, photos: Sequence[Array]) -> Iterator[Array]:
    """Photographs at the sizes of FRAMES, or at a square origin's; of some the one with about 15 things."""
    for size in [(origin.square, origin.square)] if origin.square else FRAMES:
        frames = [cv2.resize(photo, size, interpolation=cv2.INTER_AREA) for photo in photos]
        yield min(frames, key=lambda frame: abs(len(origin.answer(frame).scores) - 15))

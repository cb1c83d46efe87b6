"""Names of keypoints and the lines between them, and the options of what has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgekit.errors import EngineError

COCO_KEYPOINTS = (
    "nose",
    "left eye",
    "right eye",
    "left ear",
    "right ear",
    "left shoulder",
    "right shoulder",
    "left elbow",
    "right elbow",
    "left wrist",
    "right wrist",
    "left hip",
    "right hip",
    "left knee",
    "right knee",
    "left ankle",
    "right ankle",
)
"""COCO's 17, in its order: Lin et al., Microsoft COCO, and its person_keypoints annotations."""
# fmt: off
COCO_SKELETON = (
    (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8),
    (7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6),
)
# fmt: on
"""Lines of COCO's annotations, counted from 0."""


class Skeleton(Protocol):
    """Options that name keypoints. Where a card gives no names, 17 keypoints are COCO's."""

    @property
    def keypoints(self) -> tuple[str, ...]: ...

    @property
    def skeleton(self) -> tuple[tuple[int, int], ...]: ...


def check_skeleton(options: Skeleton) -> None:
    """Refuse lines to keypoints that do not exist.

    Raises:
        ValueError: there is one.
    """
    for pair in options.skeleton:
        if min(pair) < 0 or (options.keypoints and max(pair) >= len(options.keypoints)):
            raise ValueError(f"skeleton has {list(pair)}; the card names {len(options.keypoints)} keypoints")


def names_and_lines(options: Skeleton, count: int) -> tuple[Sequence[str], Sequence[tuple[int, int]]]:
    """Return the names of ``count`` keypoints and the lines between them.

    Raises:
        EngineError: the card names another number of keypoints.
    """
    if options.keypoints and len(options.keypoints) != count:
        raise EngineError(
            f"the output has {count} keypoints, but the card names {len(options.keypoints)}; correct "
            "keypoints in the card"
        )
    coco = count == len(COCO_KEYPOINTS)
    names = options.keypoints or (COCO_KEYPOINTS if coco else ())
    lines = options.skeleton or (COCO_SKELETON if coco and not options.keypoints else ())
    return names, tuple(pair for pair in lines if max(pair) < count)

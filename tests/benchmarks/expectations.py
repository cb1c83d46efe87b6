"""Whether an answer is right: held to what a row of ``models.toml`` states of its sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Box = Sequence[float]
Verdict = tuple[bool, str]


def judge(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """Hold an answer to an expectation.

    Args:
        expect: ``kind`` is a name in KINDS; the rest is that function's.
        answer: What ``edgekit run --json`` printed of it.

    Returns:
        Whether it is right, and the answer in short.
    """
    return KINDS[expect["kind"]](expect, answer)


def _boxes(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``boxes``: each is matched by a detection with its ``label``, IoU at least ``iou`` (0.5); at most
    ``others`` detections are others."""
    wanted = expect["boxes"]
    found = [one for one in answer if one["label"] == expect.get("label", one["label"])]
    best = [max((overlap(one["box"], box) for one in found), default=0.0) for box in wanted]
    others = len(answer) - len(wanted)
    ok = all(value >= expect.get("iou", 0.5) for value in best) and others <= expect.get("others", 1 << 30)
    label = found[0]["label"] if found else "nothing"
    return ok, f"{label}, IoU {', '.join(f'{value:.2f}' for value in best)}; {len(answer)} found"


def _top(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``label`` or ``index``: of the class that scores best, by at least ``score``."""
    first = answer[0]
    right = first["label"] == expect["label"] if "label" in expect else first["index"] == expect["index"]
    return right and first["score"] >= expect.get("score", 0), f"{first['label']} {first['score']:.2f}"


def _regions(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``boxes``: each is matched by a region whose bounding box has an IoU of at least ``iou`` (0.5);
    there are no others."""
    found = [_around(one["corners"]) for one in answer]
    best = [max((overlap(one, box) for one in found), default=0.0) for box in expect["boxes"]]
    ok = len(found) == len(best) and all(value >= expect.get("iou", 0.5) for value in best)
    return ok, f"IoU {', '.join(f'{value:.2f}' for value in best)}; {len(found)} regions"


def _text(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``text``: letter for letter, but for spaces at its ends."""
    return answer["text"].strip() == expect["text"], repr(answer["text"])


def _points(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``points``: x, y of some keypoints by name or number, each within ``within`` pixels."""
    if not answer:
        return False, "nothing found"
    found = answer[0]["keypoints"]
    far = {}
    for name, (x, y) in expect["points"].items():
        there = found[name] if isinstance(found, dict) else found[int(name)]
        far[name] = ((there[0] - x) ** 2 + (there[1] - y) ** 2) ** 0.5
    worst = max(far, key=far.__getitem__)
    return far[worst] <= expect["within"], f"{len(found)} points, {worst} off by {far[worst]:.0f} px"


def _landmarks(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``points``: x, y of some landmarks of the best detection by number, each within ``within`` pixels."""
    if not answer:
        return False, "nothing found"
    return _points(expect, [{"keypoints": answer[0]["landmarks"]}])


def _speech(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``seconds``: least and greatest length of all speech together."""
    spoken = sum(one["end_s"] - one["start_s"] for one in answer)
    low, high = expect["seconds"]
    return low <= spoken <= high, f"{spoken:.1f} s of speech in {len(answer)} parts"


def _mask(expect: Mapping[str, Any], answer: Any) -> Verdict:
    """``share``: least and greatest part of the picture that is foreground (class 1)."""
    share = sum(one["share"] for one in answer["classes"] if one["index"] == 1)
    low, high = expect["share"]
    return low <= share <= high, f"{share:.0%} foreground"


def _around(points: Sequence[Sequence[float]]) -> Box:
    xs, ys = [x for x, *_ in points], [p[1] for p in points]
    return min(xs), min(ys), max(xs), max(ys)


def overlap(a: Box, b: Box) -> float:
    """Intersection over union of two boxes x1, y1, x2, y2."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


KINDS: Mapping[str, Callable[[Mapping[str, Any], Any], Verdict]] = {
    "boxes": _boxes,
    "landmarks": _landmarks,
    "mask": _mask,
    "points": _points,
    "regions": _regions,
    "speech": _speech,
    "text": _text,
    "top": _top,
}

"""Labelled objects: YOLO text files, COCO JSON, and by globox Pascal VOC, CVAT, LabelMe and VIA.

COCO JSON is read here and not by globox, which drops crowds, outlines with their areas, and keypoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_files.class_names import class_numbers
from edgekit.compiler.evaluate.label_files.folder import (
    NoLabelsError,
    Paths,
    label_folders,
    label_paths,
    read_json,
    read_label_text,
    sample_paths,
)
from edgekit.compiler.evaluate.label_metric import LabelledSample, LabelledSamples
from edgekit.errors import SampleError, need_package
from edgekit.processing.card import Card
from edgekit.processing.picture_files import PICTURES, picture_size
from edgekit.processing.predictions.detect import Detections
from edgekit.tensor_spec import Array

COORDINATE_LIMIT = 1e6
"""Largest coordinate, in pixels."""
RELATIVE_LIMIT = 100.0
"""Largest relative coordinate: boxes may exceed the photograph, but not a hundredfold."""
POSE_AREA = 0.53
"""Area of a person relative to the box, for similarities of keypoints: that of Ultralytics' ``val``."""
CLASS_FILES = ("classes.txt", "obj.names")
"""Names of YOLO's class numbers, one a line."""


class Box(NamedTuple):
    """Labelled box.

    Attributes:
        name: Name or number of the class.
        corners: x1, y1, x2, y2 in the photograph's pixels.
        area: Area of the object in pixels. None means that of the box.
        is_crowd: Whether it stands for many objects, which do not count (COCO's ``iscrowd``).
        outline: Polygons, each a list of x, y, x, y, ... in the photograph's pixels; or COCO's run lengths.
            None if it is not labelled.
        keypoints: x, y in the photograph's pixels and visibility (0: not labelled) of each keypoint.
    """

    name: str
    corners: tuple[float, float, float, float]
    area: float | None = None
    is_crowd: bool = False
    outline: Any = None
    keypoints: Sequence[float] = ()


Reader = Callable[[Path, Sequence[Path]], dict[Path, list[Box]] | None]


@dataclass(frozen=True, eq=False)
class LabelledBoxes:
    """Objects of a photograph.

    Attributes:
        objects: The boxes in the photograph's pixels, all with score 1.
        areas: Areas in pixels: float64 [n].
        crowds: Whether they stand for many objects: bool [n].
        outlines: Outline of each object, as in ``Box``.
        keypoints: Keypoints of each object, as in ``Box``.
    """

    objects: Detections
    areas: Array
    crowds: Array
    outlines: Sequence[Any] = ()
    keypoints: Sequence[Sequence[float]] = ()


def read_boxes(folder: Path, card: Card, files: Sequence[Path] | None = None) -> LabelledSamples:
    """Read labelled photographs, in the first format that the folder has.

    Args:
        files: Photographs in the folder. None means all.

    Raises:
        SampleError: there are no photographs, or the labels are malformed.
        NoLabelsError: there are no labels.
        MissingDependency: the format needs globox, which is not installed.
    """
    photographs = sample_paths(folder, PICTURES) if files is None else files
    have_keypoints = card.task is not None and card.task.kind == "pose"
    yolo: Reader = partial(_yolo, have_keypoints=have_keypoints)
    readers = {"YOLO text files": yolo, **READERS}
    readings = ((form, reader(folder, photographs)) for form, reader in readers.items())
    form, boxes = next(((form, boxes) for form, boxes in readings if boxes is not None), ("", None))
    if boxes is None:
        raise NoLabelsError(
            f"{folder} has no labelled boxes. Known formats: a folder labels next to images with a .txt for "
            "each photograph (YOLO), a COCO .json, Pascal VOC or CVAT .xml, LabelMe or VIA .json"
        )
    if not boxes:
        raise SampleError(f"{folder}: the {form} name none of the {len(photographs)} photographs there")
    names = {box.name for rows in boxes.values() for box in rows}
    numbers, notes = class_numbers(names, card, str(folder)) if names else ({}, [])
    if missing := len(photographs) - len(boxes):
        notes = [*notes, f"{missing} of {len(photographs)} photographs have no labels and were left out"]
    samples = [
        LabelledSample(str(path.relative_to(folder)), path, _labelled(boxes[path], numbers))
        for path in photographs
        if path in boxes
    ]
    return LabelledSamples(samples, form, notes)


def _labelled(boxes: Sequence[Box], numbers: Mapping[str, int]) -> LabelledBoxes:
    boxes = [box for box in boxes if box.name in numbers]
    corners = np.array([box.corners for box in boxes], np.float64).reshape(-1, 4)
    own = (corners[:, 2:] - corners[:, :2]).prod(axis=1)
    areas = [size if box.area is None else box.area for box, size in zip(boxes, own, strict=True)]
    classes = np.array([numbers[box.name] for box in boxes], np.int64)
    objects = Detections(corners.astype(np.float32), np.ones(len(boxes), np.float32), classes)
    return LabelledBoxes(
        objects,
        np.array(areas, np.float64),
        np.array([box.is_crowd for box in boxes], np.bool_),
        [box.outline for box in boxes],
        [box.keypoints for box in boxes],
    )


def _yolo(folder: Path, photographs: Sequence[Path], have_keypoints: bool) -> dict[Path, list[Box]] | None:
    """Read text files of lines ``class cx cy w h``, relative to the photograph, or of ``class`` and the
    corners of an outline; keypoints follow the box. A photograph without a file has no objects."""
    texts = {path: _yolo_path(path) for path in photographs}
    if not any(text.is_file() for text in texts.values()):
        return None
    places = {place for text in texts.values() for place in (text.parent, text.parent.parent)}
    lists = sorted(place / name for place in places for name in CLASS_FILES if (place / name).is_file())
    names = [line.strip() for line in read_label_text(lists[0]).splitlines() if line.strip()] if lists else []
    boxes = {}
    for path, text in texts.items():
        lines = read_label_text(text).splitlines() if text.is_file() else []
        height, width = picture_size(path) if lines else (1, 1)
        rows = [(f"{text}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
        boxes[path] = [
            _yolo_box(line, width, height, names, location, have_keypoints) for location, line in rows
        ]
    return boxes


def _yolo_path(photograph: Path) -> Path:
    """Return the path of a photograph's labels: in a folder ``labels``, or next to the photograph. It may be
    missing."""
    folders = [*label_folders(photograph.parent, ("labels",)), photograph.parent]
    paths = [folder / f"{photograph.stem}.txt" for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


def _yolo_box(
    line: str, width: int, height: int, names: Sequence[str], location: str, has_keypoints: bool
) -> Box:
    try:
        index, *numbers = (float(value) for value in line.split())
    except ValueError:
        index, numbers = 0.0, []
    keypoints = numbers[4:] if has_keypoints else []
    if len(numbers) < 4 or (len(keypoints) % 3 and len(keypoints) % 2 if keypoints else len(numbers) % 2):
        form = "class cx cy w h" + (" x y v ..." if has_keypoints else "")
        raise SampleError(f"{location}: {line[:80]!r} does not have the form {form!r}")
    if not (0 <= index < 10**9 and index == int(index)):
        raise SampleError(f"{location}: {line[:80]!r} does not begin with a class number")
    if not all(abs(number) <= RELATIVE_LIMIT for number in numbers):  # NaN is not either
        raise SampleError(f"{location}: {line[:80]!r} has coordinates outside 0 to 1 of the picture")
    if names and index >= len(names):
        raise SampleError(f"{location}: class {index:.0f}, but {CLASS_FILES[0]} has {len(names)} names")
    outline = None
    if len(numbers) == 4 or keypoints:
        cx, cy, w, h = numbers[:4]
        xs, ys = [cx - w / 2, cx + w / 2], [cy - h / 2, cy + h / 2]
    else:
        xs, ys = numbers[::2], numbers[1::2]
        outline = [[value * (height if odd % 2 else width) for odd, value in enumerate(numbers)]]
    corners = (min(xs) * width, min(ys) * height, max(xs) * width, max(ys) * height)
    name = names[int(index)] if names else str(int(index))
    points = _yolo_keypoints(keypoints, width, height)
    area = POSE_AREA * numbers[2] * width * numbers[3] * height if keypoints else None
    return Box(name, _checked(corners, location), area, outline=outline, keypoints=points)


def _yolo_keypoints(numbers: Sequence[float], width: int, height: int) -> list[float]:
    """Return x, y, visibility of each keypoint in pixels. Without visibilities, (0, 0) is not labelled."""
    values = np.array(numbers)
    if len(values) % 3 == 0 and set(values[2::3]) <= {0, 1, 2}:
        points = values.reshape(-1, 3)
    else:
        points = values.reshape(-1, 2)
        points = np.column_stack([points, 2 * points.any(axis=1)])
    scaled: list[float] = (points * [width, height, 1]).ravel().tolist()
    return scaled


def _coco(folder: Path, photographs: Sequence[Path]) -> dict[Path, list[Box]] | None:
    """Read ``instances`` or ``person_keypoints`` JSON (cocodataset.org, format-data)."""
    tables = [(path, read_json(path)) for path in label_paths(folder, (".json",))]
    tables = [
        (path, table)
        for path, table in tables
        if isinstance(table, dict) and {"images", "annotations", "categories"} <= set(table)
    ]
    if not tables:
        return None
    paths, boxes = Paths(photographs), dict[Path, list[Box]]()
    for path, table in tables:
        try:
            names = {row["id"]: str(row["name"]) for row in table["categories"]}
            files = {row["id"]: paths.find(str(row["file_name"]), path) for row in table["images"]}
            for labelled in filter(None, files.values()):
                if labelled in boxes:
                    raise SampleError(
                        f"{labelled} has labels in {path} and in another file; leave one of them"
                    )
                boxes[labelled] = []
            for row in table["annotations"]:
                file = files[row["image_id"]]
                if file is None or "bbox" not in row:
                    continue
                x, y, width, height = (float(value) for value in row["bbox"])
                corners = _checked((x, y, x + width, y + height), str(path))
                area = float(row.get("area", width * height))
                points = [float(value) for value in row.get("keypoints", ())]
                is_crowd, outline = bool(row.get("iscrowd")), row.get("segmentation")
                boxes[file].append(
                    Box(names[row["category_id"]], corners, area, is_crowd, outline or None, points)
                )
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise SampleError(
                f"{path} is not COCO's JSON of boxes: {type(problem).__name__}: {problem}"
            ) from None
    return boxes


def _voc(folder: Path, photographs: Sequence[Path]) -> dict[Path, list[Box]] | None:
    files = [path for path in label_paths(folder, (".xml",)) if "<annotation>" in read_label_text(path)]
    if not files:
        return None
    globox = _globox("Pascal VOC")
    return _by_globox(files, photographs, lambda path: {path.stem: globox.Annotation.from_pascal_voc(path)})


def _cvat(folder: Path, photographs: Sequence[Path]) -> dict[Path, list[Box]] | None:
    files = [path for path in label_paths(folder, (".xml",)) if "<annotations>" in read_label_text(path)]
    if not files:
        return None
    globox = _globox("CVAT")
    return _by_globox(files, photographs, lambda path: _by_id(globox.AnnotationSet.from_cvat(path)))


def _labelme(folder: Path, photographs: Sequence[Path]) -> dict[Path, list[Box]] | None:
    files = [path for path in label_paths(folder, (".json",)) if _has(read_json(path), "shapes", "imagePath")]
    if not files:
        return None
    globox = _globox("LabelMe")
    return _by_globox(
        files, photographs, lambda path: {path.stem: globox.Annotation.from_labelme(path, include_poly=True)}
    )


def _via(folder: Path, photographs: Sequence[Path]) -> dict[Path, list[Box]] | None:
    files = [path for path in label_paths(folder, (".json",)) if _via_key(read_json(path))]
    if not files:
        return None
    globox = _globox("VIA")

    def read(path: Path) -> dict[str, Any]:
        return _by_id(globox.AnnotationSet.from_via_json(path, label_key=_via_key(read_json(path))))

    return _by_globox(files, photographs, read)


def _via_key(table: Any) -> str:
    """Return the attribute of a VIA project's regions that names their class; "" if it is not a project."""
    files = table.get("_via_img_metadata", table) if isinstance(table, dict) else {}
    for row in files.values() if isinstance(files, dict) else ():
        if not _has(row, "filename", "regions"):
            return ""
        for region in row["regions"]:
            return next(iter(region.get("region_attributes", {})), "")
    return ""


READERS: Mapping[str, Reader] = {
    "COCO JSON": _coco,
    "Pascal VOC XML": _voc,
    "CVAT XML": _cvat,
    "LabelMe JSON": _labelme,
    "VIA JSON": _via,
}
"""Format -> its reader, without YOLO's. It returns the boxes of the photographs that are labelled, or None if
the folder has no labels of this format."""


def _globox(form: str) -> Any:
    with need_package("globox", f"reading labels in the format of {form}", extra="labels"):
        import globox
    return globox


def _by_globox(
    files: Iterable[Path], photographs: Sequence[Path], read: Callable[[Path], Mapping[str, Any]]
) -> dict[Path, list[Box]]:
    paths, boxes = Paths(photographs), dict[Path, list[Box]]()
    for path in files:
        try:
            annotations = read(path)
        except (Exception, RecursionError) as problem:  # globox raises anything at a malformed file
            raise SampleError(
                f"{path} can't be read by globox: {type(problem).__name__}: {problem}"
            ) from None
        for name, annotation in annotations.items():
            photograph = paths.find(name, path)
            if photograph is not None:
                rows = [Box(str(box.label), _checked(box.ltrb, str(path))) for box in annotation.boxes]
                boxes.setdefault(photograph, []).extend(rows)
    return boxes


def _by_id(annotations: Any) -> dict[str, Any]:
    return {str(annotation.image_id): annotation for annotation in annotations}


def _has(table: Any, *keys: str) -> bool:
    return isinstance(table, dict) and set(keys) <= set(table)


def _checked(corners: Sequence[float], location: str) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (float(value) for value in corners)
    if not all(abs(value) <= COORDINATE_LIMIT for value in (x1, y1, x2, y2)):  # NaN is not either
        raise SampleError(f"{location}: a box has coordinates far outside the photograph")
    if x2 < x1 or y2 < y1:
        raise SampleError(f"{location}: a box ends before it begins: {x1:g},{y1:g} to {x2:g},{y2:g}")
    return x1, y1, x2, y2

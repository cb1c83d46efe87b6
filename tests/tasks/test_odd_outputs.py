"""Outputs of any shape and dtype are decoded or refused with one error: a card may name the wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_table import find_decoder, find_task

KINDS = (
    "depth", "detect-text", "embed", "image-to-image", "landmarks", "matting", "rank", "read-text", "segment",
)  # fmt: skip
FORMS = [(kind, form) for kind in KINDS for form in find_task(kind).decoders]
PLACED = ImagePlacement(7, 5, 8, 8, 8 / 7, 1.0, 0.0, 1.0)
DTYPES = st.sampled_from([np.float32, np.float16, np.uint8, np.int64])
Array = npt.NDArray[Any]


@st.composite
def outputs(draw: st.DrawFn) -> Array:
    shape = draw(st.lists(st.integers(0, 4), max_size=5).map(tuple))
    values = np.random.default_rng(draw(st.integers(0, 99))).normal(0, 3, shape)
    if draw(st.booleans()):
        values = np.abs(values)
    return np.asarray(values).astype(draw(DTYPES))


@pytest.mark.parametrize(("kind", "form"), FORMS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_decoded_or_refused(kind: str, form: str, data: st.DataObject) -> None:
    decoder = find_decoder(kind, form)
    roles = [*decoder.roles, *(r for r in decoder.optional_roles if data.draw(st.booleans()))]
    given_outputs = {role: data.draw(outputs()) for role in roles}
    refused, found = "", None
    try:
        found = decoder.function(given_outputs, decoder.options(), PLACED, ["a", "b"])
    except EngineError as problem:
        refused = str(problem)
    if found is None:
        assert "the output is" in refused or "the output has" in refused
    else:
        assert isinstance(str(found), str)
        assert found.as_json() is not None


BOX_FORMS = [
    (kind, form)
    for kind in ("detect", "obb", "pose", "segment-instances")
    for form in find_task(kind).decoders
]
LETTERBOXED = ImagePlacement(64, 48, 64, 64, 1, 1, 0, 8)
SIZES = (0, 1, 2, 4, 5, 6, 7, 16, 17, 56, 84, 112)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("kind", "form"), BOX_FORMS)
def test_boxes_are_decoded_or_refused(kind: str, form: str) -> None:
    rng = np.random.default_rng(0)
    decoder = find_decoder(kind, form)
    for _ in range(150):
        outputs = {}
        for role in (*decoder.roles, *decoder.optional_roles):
            shape = tuple(int(rng.choice(SIZES)) for _ in range(rng.integers(0, 5)))
            if shape and rng.random() < 0.6:
                shape = (1, *shape[1:])
            if np.prod(shape) > 50_000:
                shape = (1, 84, 84)
            values = rng.normal(0, 3, shape)
            outputs[role] = values.astype(rng.choice(["float32", "float16", "int64", "uint8"]))
        try:
            found = decoder.function(outputs, decoder.options(), LETTERBOXED, ["a"])
        except EngineError:
            continue
        assert isinstance(str(found), str)
        assert found.as_json() is not None


@pytest.mark.parametrize(
    ("form", "shapes", "text"),
    [
        ("depth/metric", {"depth": (1, 3, 4, 4)}, "depth has one plane, but the output is [1, 3, 4, 4]"),
        ("embed/vector", {"embedding": (2, 3)}, "an embedding is one vector, but the output is [2, 3]"),
        (
            "image-to-image/picture",
            {"picture": (1, 4, 8, 8)},
            "a picture has 1 or 3 channels in NCHW, but the output is [1, 4, 8, 8]",
        ),
        ("matting/alpha", {"alpha": (1, 2, 2, 4)}, "alpha has 1 planes, but the output is [1, 2, 2, 4]"),
        ("rank/logit", {"score": (1, 2)}, "a relevance is one number, but the output is [1, 2]"),
        (
            "detect-text/db",
            {"map": (1, 2, 8, 8)},
            "a text map is [1, 1, height, width], but the output is [1, 2, 8, 8]",
        ),
        ("ssd", {"boxes": (1, 3, 4), "scores": (1, 2, 5)}, "`boxes` has 3 rows but `scores` has 2"),
        ("detr", {"logits": (1, 20, 5), "boxes": (1, 3, 4)}, "`logits` has 20 rows but `boxes` has 3"),
        (
            "rtdetr",
            {"predictions": (1, 300, 4)},
            "the output is [1, 300, 4]; rtdetr decodes [1, queries, 4 + classes]",
        ),
        (
            "end2end",
            {"predictions": (1, 84, 8400)},
            "the output is [1, 84, 8400]; end2end decodes [1, boxes, 6] here",
        ),
        (
            "postprocessed",
            {"boxes": (1, 2, 4), "scores": (1, 3), "classes": (1, 3)},
            "`boxes` has 2 rows, `scores` 3 and `classes` 3; they must be equal",
        ),
        (
            "yolov5",
            {"predictions": (1, 25200, 5)},
            "the output is [1, 25200, 5]; yolov5 decodes [1, boxes, 5 + classes]",
        ),
        (
            "yolov8",
            {"predictions": (1, 4, 8)},
            "the output is [1, 4, 8]; yolov8 decodes [1, 4 + classes, boxes]",
        ),
        (
            "yolox",
            {"predictions": (1, 32, 8)},
            "the output has 32 rows, but strides [8, 16, 32] on an input of 64x64 make 84; set strides in "
            "the card",
        ),
        (
            "fastestdet",
            {"predictions": (1, 85, 484)},
            "the output is [1, 85, 484]; fastestdet decodes [1, 5 + classes, rows, columns]",
        ),
        (
            "nanodet",
            {"predictions": (1, 40, 32)},
            "the output is [1, 40, 32]; nanodet with reg_max 7 decodes [1, cells, classes + 32]",
        ),
        (
            "centernet",
            {"heatmap": (1, 2, 8, 16), "size": (1, 2, 8, 8)},
            "heatmap is [1, 2, 8, 16] and size [1, 2, 8, 8]; centernet decodes "
            "[1, classes, rows, columns] and [1, 2, rows, columns]",
        ),
        (
            "blazeface",
            {"boxes": (1, 896, 16), "scores": (1, 896, 2)},
            "boxes is [1, 896, 16] and scores [1, 896, 2]; blazeface "
            "decodes [1, boxes, 4 + 2 keypoints] and [1, boxes, 1]",
        ),
        (
            "blazeface",
            {"boxes": (1, 100, 16), "scores": (1, 100, 1)},
            "the output has 100 boxes, but the card's anchors on an input of 64x64 are 224; correct strides "
            "or anchors in the card",
        ),
        (
            "ssd-anchors",
            {"boxes": (1, 1000, 4), "scores": (1, 1000, 1)},
            "the output has 1000 boxes, but the card's anchors on an input of 64x64 are 96; correct "
            "strides, aspect_ratios or interpolated_ratio in the card",
        ),
        (
            "ssd-anchors",
            {"boxes": (1, 96, 4), "scores": (1, 96, 1)},
            "`scores` has one column, which the card assigns to the background",
        ),
        (
            "segment-instances/end2end",
            {"predictions": (1, 300, 8), "prototypes": (1, 3, 8, 8)},
            "the output is [1, 300, 8]; end2end decodes [1, boxes, 9] here",
        ),
        (
            "segment-instances/end2end",
            {"predictions": (1, 300, 8), "prototypes": (32, 160, 160)},
            "prototypes is [32, 160, 160]; it must be [1, masks, rows, columns]",
        ),
        (
            "pose/movenet",
            {"keypoints": (1, 2, 17, 3)},
            "the output is [1, 2, 17, 3]; movenet decodes [1, 1, keypoints, 3]",
        ),
        (
            "pose/movenet-multipose",
            {"predictions": (1, 6, 57)},
            "the output is [1, 6, 57]; movenet-multipose decodes [1, people, keypoints x 3 + 5]",
        ),
        ("ssd", {"boxes": (1, 9, 5), "scores": (1, 9, 3)}, "boxes is [1, 9, 5]; it must be [1, n, 4]"),
        ("ssd", {"boxes": (1, 9, 4), "scores": ()}, "scores is []; it must be [1, n, columns]"),
        (
            "detr",
            {"logits": (1, 9, 1), "boxes": (1, 9, 4)},
            '`logits` has one column, which softmax reserves for "no object"',
        ),
        (
            "yolox",
            {"predictions": (1, 9, 5)},
            "the output has 5 columns; yolox decodes [1, cells, 5 + classes]",
        ),
        (
            "centerface",
            {
                "heatmap": (1, 1, 4, 4),
                "scale": (1, 2, 4, 4),
                "offset": (1, 2, 4, 4),
                "landmarks": (1, 9, 4, 4),
            },
            "heatmap, scale, offset and landmarks are "
            "[1, 1, 4, 4], [1, 2, 4, 4], [1, 2, 4, 4], [1, 9, 4, 4]; "
            "centerface decodes [1, 1, h, w], [1, 2, h, w], [1, 2, h, w] and [1, 2 points, h, w]",
        ),
    ],
)
def test_what_is_wrong_is_said(form: str, shapes: dict[str, tuple[int, ...]], text: str) -> None:
    kind, _, form = form.rpartition("/")
    decoder = find_decoder(kind or "detect", form)
    outputs = {role: np.zeros(shape, np.float32) for role, shape in shapes.items()}
    with pytest.raises(EngineError) as error:
        decoder.function(outputs, decoder.options(), LETTERBOXED, ())
    assert str(error.value) == text


def test_a_class_below_0_has_its_number() -> None:
    rows = np.array([[[0, 0, 9, 9, 0.9, -1]]], np.float32)
    decoder = find_decoder("detect", "end2end")
    found = decoder.function({"predictions": rows}, decoder.options(), LETTERBOXED, ["cat", "dog"])
    assert str(found).startswith("-1  0.900")

"""Outputs of detectors, of any shape and dtype, are decoded or refused with one error."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_table import find_decoder, find_task

FORMS = [
    (kind, form)
    for kind in ("detect", "obb", "pose", "segment-instances")
    for form in find_task(kind).decoders
]
PLACED = ImagePlacement(64, 48, 64, 64, 1, 1, 0, 8)
SIZES = (0, 1, 2, 4, 5, 6, 7, 16, 17, 56, 84, 112)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_decoded_or_refused(kind: str, form: str) -> None:
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
            found = decoder.function(outputs, decoder.options(), PLACED, ["a"])
        except EngineError:
            continue
        assert isinstance(str(found), str)
        assert found.as_json() is not None


@pytest.mark.parametrize(
    ("form", "shapes", "text"),
    [
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
    decoder = find_decoder("detect", form)
    outputs = {role: np.zeros(shape, np.float32) for role, shape in shapes.items()}
    with pytest.raises(EngineError) as error:
        decoder.function(outputs, decoder.options(), PLACED, ())
    assert str(error.value) == text


def test_a_class_below_0_has_its_number() -> None:
    rows = np.array([[[0, 0, 9, 9, 0.9, -1]]], np.float32)
    decoder = find_decoder("detect", "end2end")
    found = decoder.function({"predictions": rows}, decoder.options(), PLACED, ["cat", "dog"])
    assert str(found).startswith("-1  0.900")

"""Pictures with predictions drawn into them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.errors import UsageError
from edgekit.processing.drawing import BLEND, COLOURS, Canvas, check_drawing, save_drawing
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.depth import DepthMap
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.predictions.image_to_image import Picture
from edgekit.processing.predictions.matting import GREEN, Matte
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.prediction import Prediction
from edgekit.processing.predictions.segment import ClassMap
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.tensor_spec import Array

RED, BLUE = np.array(COLOURS[0]), np.array(COLOURS[1])


def grey(width: int = 400, height: int = 300) -> Array:
    return np.full((height, width, 3), 128, np.uint8)


def drawn(prediction: Prediction, picture: Array) -> Array:
    return np.asarray(prediction.draw(picture))


def detections(*boxes: list[float], classes: list[int]) -> Detections:
    count = len(boxes)
    return Detections(
        np.array(boxes, np.float32), np.full(count, 0.5, np.float32), np.array(classes), ["cat", "dog"]
    )


def test_a_box_is_in_its_class_colour() -> None:
    found = drawn(detections([50, 100, 150, 200], [200, 100, 390, 290], classes=[0, 1]), grey())
    assert (found[150, 50] == RED).all()
    assert (found[200, 100] == RED).all()
    assert (found[250, 200] == BLUE).all()
    assert (found[150, 100] == 128).all()  # inside of it the picture is seen


def test_labels_stay_in_the_picture() -> None:
    """At the top there is no room above the box, at the right none beside its corner."""
    found = drawn(detections([380, 0, 400, 40], classes=[0]), grey())
    assert (found[0, 399] == RED).all()
    assert (found == 255).all(axis=2).any()  # the text
    white = np.argwhere((found == 255).all(axis=2))
    assert white[:, 0].max() < 40


def test_a_box_may_be_larger_than_the_picture_and_corners_the_wrong_way_round() -> None:
    found = drawn(detections([500, -50, -20, 400], [30, 90, 10, 20], classes=[0, 1]), grey())
    assert (found[50, 10] == BLUE).all()


def test_nothing_found_leaves_the_picture_alone() -> None:
    empty = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    np.testing.assert_array_equal(drawn(empty, grey()), grey())


def test_classes_are_written_one_below_the_other() -> None:
    found = drawn(Classes(np.array([1, 0]), np.array([0.9, 0.1], np.float32), ["cat", "dog"]), grey())
    first, second = (np.argwhere((found == colour).all(axis=2))[:, 0] for colour in (RED, BLUE))
    assert first.max() < second.min()


def test_bones_join_visible_keypoints_only() -> None:
    found = Keypoints(
        np.array([[[100, 150], [200, 150], [300, 150]]], np.float32),
        np.array([0.9], np.float32),
        point_scores=np.array([[0.9, 0.9, 0.1]], np.float32),
        skeleton=[(0, 1), (1, 2)],
    )
    picture = drawn(found, grey())
    assert (picture[150, 150] == RED).all()
    assert (picture[150, 250] == 128).all()


def test_a_mask_tints_its_pixels() -> None:
    canvas = Canvas(grey())
    canvas.cover(np.ones((10, 20), np.bool_), COLOURS[0], (100, 50))
    found = np.asarray(canvas.image).astype(np.float64)
    np.testing.assert_allclose(found[55, 110], 128 + BLEND * (RED - 128), atol=1.5)
    assert (found[61, 110] == 128).all()
    assert (found[55, 99] == 128).all()


def test_instances_tint_what_they_cover() -> None:
    mask = np.zeros((100, 100), np.bool_)
    mask[40:60, 40:60] = True
    one = np.array([[50, 100, 150, 200]], np.float32)
    found = Instances(one, np.array([0.9]), np.array([0]), [mask], np.array([[50, 100]]), 400, 300, ["cat"])
    picture = drawn(found, grey()).astype(np.float64)
    np.testing.assert_allclose(picture[150, 100], 128 + BLEND * (RED - 128), atol=1.5)
    assert (picture[130, 80] == 128).all()
    assert (picture[199, 100] == RED).all()


def test_oriented_boxes_stand_as_they_are() -> None:
    one = np.array([[200, 150, 100, 40, np.pi / 2]], np.float32)  # 40 wide and 100 high
    picture = drawn(OrientedDetections(one, np.array([0.9]), np.array([0]), ["ship"]), grey())
    assert (picture[150, 220] == RED).all()
    assert (picture[150, 249] == 128).all()


def test_regions_of_text_are_numbered() -> None:
    corners = np.array([[[50, 100], [150, 100], [150, 140], [50, 140]]], np.float32)
    picture = drawn(TextRegions(corners, np.array([0.9], np.float32)), grey())
    assert (picture[120, 150] == RED).all()
    assert (picture[120, 100] == 128).all()


def test_a_class_map_tints_all_but_the_background() -> None:
    classes = np.zeros((300, 400), np.uint8)
    classes[150:, 200:] = 1
    picture = drawn(ClassMap(classes, ["background", "road"]), grey()).astype(np.float64)
    np.testing.assert_allclose(picture[250, 300], 128 + BLEND * (BLUE - 128), atol=1.5)
    assert (picture[250, 100] == 128).all()
    assert (picture[0, 0] == BLUE).all()  # its name and share


def test_depth_is_shown_alone_near_is_bright() -> None:
    values = np.tile(np.linspace(1, 5, 400, dtype=np.float32), (300, 1))
    picture = drawn(DepthMap(values, "metric"), grey())
    assert (picture[250, 5] > 240).all()
    assert (picture[250, 395] < 15).all()


def test_a_matte_stands_before_green() -> None:
    alpha = np.zeros((300, 400), np.float32)
    alpha[:, :200] = 1
    picture = drawn(Matte(alpha), grey())
    assert (picture[100, 100] == 128).all()
    assert (picture[100, 300] == GREEN).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_shown_in_its_own_size(channels: int) -> None:
    pixels = np.full((30, 60, channels), 7, np.uint8)
    picture = drawn(Picture(pixels), grey())
    assert picture.shape == (30, 60, 3)
    assert (picture == 7).all()


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_it_is_written_in_the_format_of_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    save_drawing(path, detections([50, 100, 150, 200], classes=[0]).draw(grey()))
    with Image.open(path) as image:
        assert image.size == (400, 300)
        assert image.format == {".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}[suffix]


def test_a_suffix_that_is_not_written() -> None:
    with pytest.raises(UsageError) as error:
        check_drawing(Path("out.gif"))
    assert str(error.value) == "out.gif: the suffix of a drawing must be one of .jpg, .jpeg, .png, .webp"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "out.png"
    with pytest.raises(UsageError) as error:
        save_drawing(path, detections([50, 100, 150, 200], classes=[0]).draw(grey()))
    assert str(error.value) == f"can't write {path}: No such file or directory; choose another path"


def test_a_prediction_without_a_picture() -> None:
    with pytest.raises(UsageError) as error:
        Embedding(np.ones(3, np.float32)).draw(grey())
    assert (
        str(error.value) == "a prediction of type Embedding cannot be drawn; print it, or use its as_json()"
    )

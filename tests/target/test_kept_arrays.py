"""Arrays are filled again only if nobody holds them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from edgekit.target.kept_arrays import MAX_KEPT, SMALL_BYTES, kept_array, kept_copy
from edgekit.tensor_spec import Array

SHAPE = (1, 3, 200, 301)


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array,
        lambda array: array[0, :, ::2],
        lambda array: memoryview(array),
        lambda array: {"images": [array.reshape(-1)]},
        lambda array: lambda: array,
    ],
    ids=["itself", "a view", "a buffer", "in containers", "a closure"],
)
def test_an_array_that_is_held_stays_as_it_is(hold: Callable[[Array], Any]) -> None:
    array = kept_array(SHAPE, np.float32)
    array.fill(7)
    address = array.ctypes.data
    held = hold(array)
    del array
    for _ in range(3 * MAX_KEPT):
        assert kept_array(SHAPE, np.float32).ctypes.data != address
    del held


def test_an_array_that_nobody_holds_is_filled_again() -> None:
    addresses = set()
    for _ in range(50):
        addresses.add(kept_array(SHAPE, np.float32).ctypes.data)
    assert len(addresses) == 1
    assert kept_array(SHAPE, np.int32).dtype == np.int32  # of equal size, but not of equal dtype


def test_threads_have_arrays_of_their_own() -> None:
    def fill(value: int) -> bool:
        array = kept_array(SHAPE, np.float32)
        array.fill(value)
        return bool((kept_copy(array) == value).all() and (array == value).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(fill, range(400)))


def test_a_copy_is_contiguous_whatever_it_copies() -> None:
    values = np.arange(2 * SMALL_BYTES, dtype=np.uint8).reshape(512, -1).T
    copied = kept_copy(values)
    assert copied.flags.c_contiguous
    np.testing.assert_array_equal(copied, values)


FRAMES = """
import resource, sys
import numpy as np
from edgekit.processing.card import parse_card
from edgekit.processing.image_preparation import prepare_image

image = parse_card({
    "title": "t",
    "inputs": {"images": {
        "kind": "image", "shape": [1, 3, 640, 640], "layout": "NCHW", "colour": "RGB", "resize": "letterbox",
        "pad": 114, "std": [255, 255, 255],
    }},
    "task": {"kind": "classify", "decode": "logits", "labels": ["a", "b"], "outputs": {"scores": "o"}},
}).inputs["images"]
frame = np.zeros((1080, 1920, 3), np.uint8)
for _ in range(3):
    prepare_image(image, frame)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    prepare_image(image, frame)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts Linux's page faults")
def test_a_steady_loop_has_no_page_faults() -> None:
    """With glibc's threshold as it is at a process's start: later allocations raise it, or do not."""
    done = subprocess.run(
        [sys.executable, "-c", FRAMES], env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) < 10  # 1,500 with fresh arrays

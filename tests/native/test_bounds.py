"""Bounds of libedgekit on what a bundle and a program hand it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.system.formats.npy import HEADER_LIMIT_BYTES, npy_bytes
from tests.fixtures.bundles import X, small_bundle
from tests.native.library import NativeBundle, RefusedError
from tests.native.models import colours_bundle
from tests.native.structures import Placement

pytestmark = pytest.mark.needs_compiler
SIDES = ("frame_width", "frame_height", "input_width", "input_height")


def padded_npy(data_start: int, size_bytes: int) -> bytes:
    """Return the array X as .npy whose data starts at this byte, cut to a size; spaces fill up the header."""
    plain = npy_bytes(X)
    header_end = 10 + int.from_bytes(plain[8:10], "little")
    header = plain[10:header_end].rstrip(b"\n").ljust(data_start - 11) + b"\n"
    content = plain[:8] + len(header).to_bytes(2, "little") + header + plain[header_end:]
    return content[:size_bytes]


def test_a_header_of_a_golden_array_is_bounded(tmp_path: Path) -> None:
    largest = HEADER_LIMIT_BYTES + X.nbytes
    path = small_bundle(entries={"golden/0/x.npy": padded_npy(HEADER_LIMIT_BYTES, largest)}).save(
        tmp_path / "padded.edgekit"
    )
    with NativeBundle(path) as library:
        library.verify()
    longer = padded_npy(HEADER_LIMIT_BYTES + 1, largest)
    path = small_bundle(entries={"golden/0/x.npy": longer}).save(tmp_path / "longer.edgekit")
    with NativeBundle(path) as library, pytest.raises(RefusedError) as found:
        library.verify()
    with Bundle.open(path) as python, pytest.raises(BundleError) as expected:
        assert python.golden
    assert str(found.value) == str(expected.value)
    assert "a .npy header of 4097 bytes; the limit is 4096" in str(found.value)


def test_sides_of_a_picture_are_bounded(tmp_path: Path) -> None:
    with NativeBundle(colours_bundle().save(tmp_path / "c.edgekit")) as bundle:
        bundle.prepare(np.zeros((1, 1 << 16, 3), np.uint8), "rgb")
        for shape in ((1, (1 << 16) + 1, 3), ((1 << 16) + 1, 1, 3), (0, 4, 3), (4, 0, 3)):
            with pytest.raises(RefusedError, match=r"; its sides must be from 1 to 65536$"):
                bundle.prepare(np.zeros(shape, np.uint8), "rgb")


@pytest.mark.parametrize("side", SIDES)
def test_a_placement_has_no_side_below_1(tmp_path: Path, side: str) -> None:
    scores = {"scores": np.zeros((1, 3), np.float32)}
    with NativeBundle(colours_bundle().save(tmp_path / "c.edgekit")) as bundle:
        _, placed = bundle.prepare(np.zeros((4, 4, 3), np.uint8), "rgb")
        bundle.decode(scores, placed)
        changed = Placement.from_buffer_copy(placed)
        setattr(changed, side, 0)
        with pytest.raises(RefusedError, match=r"^the placement has a side below 1; pass what edgekit_pre"):
            bundle.decode(scores, changed)

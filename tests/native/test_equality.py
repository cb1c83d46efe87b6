"""The short form of ``python -m tests.native.equality``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.native.cases import DECODERS, make_case
from tests.native.equality import Totals, compare, write_bundle
from tests.native.library import NativeBundle, RefusedError

pytestmark = pytest.mark.needs_compiler
CASES = 1000


def test_cards_pictures_and_outputs_of_both_are_equal(tmp_path: Path) -> None:
    totals = Totals()
    for number in range(CASES):
        compare(make_case(number), tmp_path / "case.edgekit", totals)
    assert totals.cases.total() == CASES
    assert len(totals.cases) == len(DECODERS)
    assert totals.predictions > 20_000


def test_a_changed_pixel_is_found(tmp_path: Path) -> None:
    case = make_case(3)
    write_bundle(case, tmp_path / "case.edgekit")
    other = case._replace(frame=np.roll(case.frame, 1))
    with NativeBundle(tmp_path / "case.edgekit") as bundle:
        made, _ = bundle.prepare(case.frame, case.order)
        turned, _ = bundle.prepare(other.frame, case.order)
    assert made.tobytes() != turned.tobytes()


def test_nan_in_an_output_is_refused_with_python_s_text(tmp_path: Path) -> None:
    case = next(c for c in map(make_case, range(100)) if c.output.dtype == np.float32 and c.output.size)
    case.output.flat[0] = np.nan
    write_bundle(case, tmp_path / "case.edgekit")
    with NativeBundle(tmp_path / "case.edgekit") as bundle:
        _, placed = bundle.prepare(case.frame, case.order)
        with pytest.raises(
            RefusedError, match=r"^1 of [0-9]+ values of output y are NaN or infinite; the input"
        ):
            bundle.decode({"y": case.output}, placed)

"""Outputs of any shape are decoded or refused with one error: a card may name the wrong ones."""

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

"""The options of a deferral come from a file, and are checked before an engine is opened."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.errors import EngineError
from edgekit.target.deferral import open_runner
from edgekit.tensor_spec import TensorSpec

PART = {"variant": "a", "target": "ort", "options": {}}
OPTIONS = {
    "small": PART, "large": PART, "scores": "y", "decode": "logits", "scale": 1.0, "threshold": 0.4
}  # fmt: skip
OF_ITSELF = {**PART, "target": "deferral"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decode": "boxes"}, "the options of a deferral name output 'y' as 'boxes', which is not supported"),
        ({"scores": "z"}, "the options of a deferral name output 'z' as 'logits', which is not supported"),
        ({"small": OF_ITSELF}, "a: a deferral can't be part of a deferral"),
    ],
)
def test_options_that_fit_no_deferral(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError) as error:
        open_runner({}, [], [TensorSpec("y", "float32", (1, 4))], {**OPTIONS, **change}, None)
    assert str(error.value) == message

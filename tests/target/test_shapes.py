"""An artifact with several lengths, opened on an engine that only counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.target import text_lengths
from edgekit.target.registry import open_runner
from edgekit.target.text_lengths import TokenAxes
from edgekit.tensor_spec import Array, Json, TensorSpec

INPUTS = [TensorSpec("ids", "int64", (1, 6)), TensorSpec("mask", "int64", (1, 6))]
OUTPUTS = [TensorSpec("tokens", "float32", (1, 6, 2)), TensorSpec("score", "float32", (1, 1))]
FILES = {name: Path(name) for name in ("model", "lengths/2/model", "lengths/4/model")}


class Counting:
    """An engine whose ``tokens`` are the ids, twice, and whose ``score`` is how many tokens it was given."""

    def __init__(self, broken: str = "") -> None:
        self.open: list[str] = []
        self.broken = broken

    def open_runner(
        self, files: Mapping[str, Path], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec],
        options: Mapping[str, Json], threads: int | None,
    ) -> CountingRunner:  # fmt: skip
        if self.broken == str(files["model"]):
            raise EngineError("it is broken")
        assert "lengths" not in options
        self.open.append(str(files["model"]))
        return CountingRunner(self, str(files["model"]), inputs[0].shape)


class CountingRunner:
    device, precision = "CPU", "fp32"

    def __init__(self, engine: Counting, name: str, shape: tuple[int, ...]) -> None:
        self._engine, self._name, self._shape = engine, name, shape

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert feeds["ids"].shape == feeds["mask"].shape == self._shape
        assert feeds["ids"].flags.c_contiguous
        tokens = np.repeat((feeds["ids"] * feeds["mask"])[..., None], 2, axis=2).astype(np.float32)
        return {"tokens": tokens, "score": np.full((1, 1), self._shape[-1], np.float32)}

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._engine.open.remove(self._name)


def options(padding: str = "right", **changed: Any) -> dict[str, Json]:
    shorter = {str(n): {"files": {"model": f"lengths/{n}/model"}, "options": {}} for n in (2, 4)}
    axes = {"ids": [1], "mask": [1], "tokens": [1]}
    return {"lengths": {"mask": "mask", "padding": padding, "axes": axes, "shorter": shorter, **changed}}


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize(("count", "length"), [(0, 6), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (6, 6)])
def test_the_shortest_that_holds_the_tokens_runs(padding: str, count: int, length: int) -> None:
    engine = Counting()
    runner = open_runner(engine, FILES, INPUTS, OUTPUTS, options(padding), 1)  # type: ignore[arg-type]
    there = np.arange(6) < count if padding == "right" else np.arange(6) >= 6 - count
    feeds = {"ids": np.arange(1, 7)[None], "mask": there.astype(np.int64)[None]}
    found = runner.run(feeds)
    assert found["score"] == length
    assert np.array_equal(found["tokens"][0, :, 1], np.arange(1, 7) * there)
    runner.close()
    assert engine.open == []


def test_a_gap_in_the_mask_counts_as_text() -> None:
    axes = TokenAxes("mask", False, {"mask": (0,)})
    assert [axes.needed({"mask": np.array(mask)}) for mask in ([1, 0, 0], [0, 1, 0], [1, 0, 1])] == [1, 2, 3]


def test_a_length_that_does_not_open_leaves_none_open() -> None:
    engine = Counting(broken="lengths/4/model")
    with pytest.raises(EngineError, match="it is broken"):
        open_runner(engine, FILES, INPUTS, OUTPUTS, options(), 1)  # type: ignore[arg-type]
    assert engine.open == []


@pytest.mark.parametrize(
    "changed",
    [
        {"padding": "middle"},
        {"mask": "tokens"},
        {"mask": "other"},
        {"axes": {"ids": [1], "mask": [1], "tokens": [7]}},
        {"axes": {"ids": [1], "mask": [1], "tokens": [2]}},
        {"axes": {"ids": [-1], "mask": [1]}},
        {"axes": []},
        {"shorter": {}},
        {"shorter": {"6": {"files": {}, "options": {}}}},
        {"shorter": {"-2": {"files": {}, "options": {}}}},
        {"shorter": {"2": {"files": {"model": "elsewhere"}, "options": {}}}},
        {"shorter": {"2": {"files": 3, "options": {}}}},
    ],
)
def test_an_option_from_elsewhere_is_refused(changed: dict[str, Json]) -> None:
    with pytest.raises(EngineError, match=r"^the lengths of a variant are malformed: "):
        open_runner(Counting(), FILES, INPUTS, OUTPUTS, options(**changed), 1)  # type: ignore[arg-type]


def test_the_files_of_the_whole_length_are_told() -> None:
    assert text_lengths.whole_length(FILES) == {"model": Path("model")}

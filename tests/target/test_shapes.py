"""An artifact with several shapes, opened on an engine that only counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.target import shapes
from edgekit.target.contract import EngineInfo
from edgekit.target.registry import open_runner
from edgekit.target.shapes import TokenAxes
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec

INPUTS = [TensorSpec("ids", "int64", (1, 6)), TensorSpec("mask", "int64", (1, 6))]
OUTPUTS = [TensorSpec("tokens", "float32", (1, 6, 2)), TensorSpec("score", "float32", (1, 1))]
FILES = {name: Path(name) for name in ("model", "shapes/0/model", "shapes/1/model")}


class Counting:
    """An engine whose ``tokens`` are the ids, twice, and whose ``score`` is how many tokens it was given."""

    def __init__(self, broken: str = "", wrong: bool = False, prepared: bool = False) -> None:
        self.open: list[str] = []
        self.broken, self.wrong = broken, wrong
        self.ENGINE = EngineInfo(packages=(), prepared_on_device=prepared)

    def open_runner(
        self, files: Mapping[str, Path], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec],
        options: Mapping[str, Json], threads: int | None,
    ) -> CountingRunner:  # fmt: skip
        if self.broken == str(files["model"]):
            raise EngineError("it is broken")
        assert "shapes" not in options
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
        if self._engine.wrong:
            tokens = tokens[:, :1]
        return {"tokens": tokens, "score": np.full((1, 1), self._shape[-1], np.float32)}

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._engine.open.remove(self._name)


def entry(number: int, length: int, **changed: Any) -> dict[str, Json]:
    inputs, outputs = {"ids": [1, length], "mask": [1, length]}, {"tokens": [1, length, 2], "score": [1, 1]}
    files = {"model": f"shapes/{number}/model"}
    return {"inputs": inputs, "outputs": outputs, "files": files, "options": {}, **changed}


def options(text: Json = None, **changed: Any) -> dict[str, Json]:
    return {"shapes": {"further": [entry(0, 2), entry(1, 4)], "text": text, **changed}}


def text_options(padding: str = "right") -> dict[str, Json]:
    axes = {"ids": [1], "mask": [1], "tokens": [1]}
    return options({"mask": "mask", "padding": padding, "axes": axes})


def opened(option: Mapping[str, Json], engine: Counting | None = None) -> Any:
    engine = engine or Counting()
    return open_runner(engine, FILES, INPUTS, OUTPUTS, option, 1)  # type: ignore[arg-type]


def feeds_of(length: int, mask: Array | None = None) -> dict[str, Array]:
    mask = np.ones(length) if mask is None else mask
    return {"ids": np.arange(1, length + 1)[None], "mask": mask.astype(np.int64)[None]}


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize(("count", "length"), [(0, 6), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (6, 6)])
def test_the_shortest_that_holds_the_tokens_runs(padding: str, count: int, length: int) -> None:
    engine = Counting()
    runner = opened(text_options(padding), engine)
    there = np.arange(6) < count if padding == "right" else np.arange(6) >= 6 - count
    found = runner.run(feeds_of(6, there))
    assert found["score"] == length
    assert np.array_equal(found["tokens"][0, :, 1], np.arange(1, 7) * there)
    runner.close()
    assert engine.open == []


@pytest.mark.parametrize("option", [options(), text_options()])
def test_arrays_run_at_their_own_shape(option: Mapping[str, Json]) -> None:
    runner = opened(option)
    for length in (4, 6, 2):
        found = runner.run(feeds_of(length))
        assert found["score"] == length
        assert found["tokens"].shape == (1, length, 2)
    assert runner.runs == {((1, 2), (1, 2)): 1, ((1, 4), (1, 4)): 1}


def test_without_a_text_the_mask_cuts_nothing() -> None:
    assert opened(options()).run(feeds_of(6, np.arange(6) < 1))["score"] == 6


def test_further_shapes_are_loaded_when_they_are_first_used() -> None:
    engine = Counting()
    runner = opened(options(), engine)
    assert engine.open == ["model"]
    for _ in range(2):
        runner.run(feeds_of(2))
    assert engine.open == ["model", "shapes/0/model"]
    runner.close()
    assert engine.open == []


def test_engines_that_are_built_on_the_device_are_loaded_at_once() -> None:
    engine = Counting(prepared=True)
    opened(options(), engine).close()
    assert engine.open == []
    broken = Counting(prepared=True, broken="shapes/1/model")
    with pytest.raises(EngineError, match="it is broken"):
        opened(options(), broken)
    assert broken.open == []


def test_a_shape_that_does_not_load_fails_its_runs_alone() -> None:
    runner = opened(options(), Counting(broken="shapes/1/model"))
    with pytest.raises(EngineError, match="it is broken"):
        runner.run(feeds_of(4))
    assert runner.run(feeds_of(2))["score"] == 2


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(
        EngineError, match=r"it returned tokens float32 1x1x2.*outputs are tokens float32 1x2x2"
    ):
        opened(options(), Counting(wrong=True)).run(feeds_of(2))


def test_a_gap_in_the_mask_counts_as_text() -> None:
    axes = TokenAxes("mask", False, {"mask": (0,)})
    assert [axes.needed({"mask": np.array(mask)}) for mask in ([1, 0, 0], [0, 1, 0], [1, 0, 1])] == [1, 2, 3]


HOSTILE_ENTRIES: list[Json] = [
    None,
    3,
    {},
    "shape",
    entry(0, 2, inputs={"ids": [1, 2]}),
    entry(0, 2, inputs={"ids": [1, 2], "mask": [1, 2], "more": [1]}),
    entry(0, 2, inputs={"ids": [1, 2], "mask": [2]}),
    entry(0, 2, inputs={"ids": [1, 2], "mask": "12"}),
    entry(0, 2, inputs={"ids": [1, -2], "mask": [1, 2]}),
    entry(0, 2, inputs={"ids": [1, 0], "mask": [1, 2]}),
    entry(0, 2, inputs={"ids": [1, True], "mask": [1, 2]}),
    entry(0, 2, inputs={"ids": [1, 2.0], "mask": [1, 2]}),
    entry(0, 2, inputs={"ids": [1, 1 << 40], "mask": [1, 2]}),
    entry(0, 2, inputs={"ids": [1, 6], "mask": [1, 6]}),
    entry(0, 2, inputs=[["ids", [1, 2]]]),
    entry(0, 2, outputs={"tokens": [1, 2, 2]}),
    entry(0, 2, outputs={"tokens": [1, -1, 2], "score": [1, 1]}),
    entry(0, 2, files={"model": "elsewhere"}),
    entry(0, 2, files={"model": ["model"]}),
    entry(0, 2, files=3),
    entry(0, 2, options=3),
]


@pytest.mark.parametrize("hostile", HOSTILE_ENTRIES)
def test_a_hostile_entry_is_refused(hostile: Json) -> None:
    with pytest.raises(EngineError, match=r"^the shapes of a variant are malformed: "):
        opened(options(further=[hostile]))


@pytest.mark.parametrize(
    "changed",
    [
        {"shapes": {}},
        {"shapes": 3},
        {"shapes": []},
        {"shapes": {"further": []}},
        {"shapes": {"further": "ab"}},
        {"shapes": {"further": [entry(0, 2), entry(1, 2)]}},
        options(text=3),
        options({"mask": "mask", "padding": "right", "axes": {"ids": [1], "mask": [1]}}),
        options({"mask": "mask", "padding": "middle", "axes": {"ids": [1], "mask": [1], "tokens": [1]}}),
    ],
)
def test_an_option_from_elsewhere_is_refused(changed: dict[str, Json]) -> None:
    engine = Counting()
    with pytest.raises(EngineError, match=r"^the shapes of a variant are malformed: "):
        opened(changed, engine)
    assert engine.open == []


def test_an_empty_axis_stays_empty() -> None:
    largest = Signature((TensorSpec("a", "int64", (0, 2)), TensorSpec("b", "int64", (9,))), ())
    assert shapes.signature_at(largest, {"a": [0, 1], "b": [9]}, {}).inputs[0].shape == (0, 1)
    with pytest.raises(ValueError, match=r"a \[1, 2\]"):
        shapes.signature_at(largest, {"a": [1, 2], "b": [4]}, {})


def test_the_files_of_the_largest_shape_are_told() -> None:
    assert shapes.largest_files(FILES) == {"model": Path("model")}

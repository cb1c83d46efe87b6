"""The range of a model's sizes, and a runner for it, on an engine that may answer at another size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.target.contract import EngineInfo
from edgekit.target.registry import open_runner
from edgekit.target.shape_range import RangeShapes, parse_range, shape_of, takes, together
from edgekit.target.tensor_checks import fitted
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec

INPUTS = (TensorSpec("ids", "int64", (1, 8)), TensorSpec("mask", "int64", (1, 8)))
OUTPUTS = (TensorSpec("tokens", "float32", (1, 8, 2)), TensorSpec("pairs", "float32", (15,)))
LARGEST = Signature(INPUTS, OUTPUTS)
TABLE = {
    "sizes": [2, 8],
    "inputs": {"ids": [1, [1, 0]], "mask": [1, [1, 0]]},
    "outputs": {"tokens": [1, [1, 0], 2], "pairs": [[2, -1]]},
}
AXES = {"ids": [1], "mask": [1], "tokens": [1]}
TEXT = {"mask": "mask", "padding": "right", "axes": AXES}


class Sized:
    """An engine whose file takes every size; ``off``: it answers at a size that is so much larger."""

    ENGINE = EngineInfo(packages=())
    device, precision = "CPU", "fp32"

    def __init__(self, off: int = 0) -> None:
        self.off, self.sizes, self.closed = off, list[int](), False

    def open_runner(
        self, files: Mapping[str, Path], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec],
        options: Mapping[str, Json], threads: int | None,
    ) -> Sized:  # fmt: skip
        assert options["own"] == 1
        assert [spec.shape for spec in (*inputs, *outputs)] == [(1, -1), (1, -1), (1, -1, 2), (-1,)]
        return self

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        size = feeds["ids"].shape[1] + self.off
        self.sizes.append(size)
        return {
            "tokens": np.full((1, size, 2), size, np.float32),
            "pairs": np.zeros(2 * size - 1, np.float32),
        }

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self.closed = True


def opened(engine: Sized, **changed: Any) -> Any:
    options = {"own": 1, "range": {**TABLE, **changed}}
    return open_runner(engine, {}, INPUTS, OUTPUTS, options, 1)  # type: ignore[arg-type]


def feeds_of(size: int, tokens: int | None = None) -> dict[str, Array]:
    mask = (np.arange(size) < (size if tokens is None else tokens)).astype(np.int64)[None]
    return {"ids": np.arange(size)[None], "mask": mask}


def shapes() -> RangeShapes:
    of_range = parse_range(TABLE, LARGEST)
    return RangeShapes((of_range.at(2), LARGEST), of_range)


def test_every_size_runs_on_one_runner() -> None:
    engine = Sized()
    runner = opened(engine)
    for size in (8, 2, 5, 5):
        answer = runner.run(feeds_of(size))
        assert (answer["tokens"].shape, answer["pairs"].shape) == ((1, size, 2), (2 * size - 1,))
    assert engine.sizes == [8, 2, 5, 5]
    runner.close()
    assert engine.closed


@pytest.mark.parametrize("size", [2, 5, 8])
def test_an_answer_at_another_size_is_refused(size: int) -> None:
    with pytest.raises(EngineError, match="it returned tokens float32 1x"):
        opened(Sized(off=1)).run(feeds_of(size))


@pytest.mark.parametrize("size", [1, 9])
def test_a_runner_takes_no_size_beyond_the_range(size: int) -> None:
    engine = Sized()
    with pytest.raises(EngineError, match=r"are not in the range ids=1x2\.\.8, mask=1x2\.\.8$"):
        opened(engine).run(feeds_of(size))
    assert not engine.sizes


@pytest.mark.parametrize(("tokens", "size"), [(1, 2), (3, 3), (7, 7), (8, 8), (0, 8)])
def test_a_text_in_arrays_of_the_largest_size_runs_at_its_number_of_tokens(tokens: int, size: int) -> None:
    engine = Sized()
    outputs = (OUTPUTS[0],)
    table = {**TABLE, "outputs": {"tokens": TABLE["outputs"]["tokens"]}, "text": TEXT}  # type: ignore[index]
    engine.open_runner = lambda *_: engine  # type: ignore[method-assign]
    runner = open_runner(engine, {}, INPUTS, outputs, {"range": table}, 1)  # type: ignore[arg-type]
    answer = runner.run(feeds_of(8, tokens))["tokens"]
    assert engine.sizes == [size]
    assert answer.shape == (1, 8, 2)
    assert np.array_equal(answer[0, :, 0], np.where(np.arange(8) < size, size, 0))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sizes": [8, 2]}, "sizes 8 to 2"),
        ({"sizes": [0, 8]}, "sizes 0 to 8"),
        ({"sizes": [2, True]}, "sizes 2 to True"),
        ({"sizes": [2]}, "not enough values"),
        ({"sizes": [2, 9]}, "at 9 the shapes are not the model's"),
        ({"inputs": {"ids": [1, 8], "mask": [1, 8]}}, "no input depends on the size"),
        ({"inputs": {"ids": [1, [1, 0]]}}, "names ids"),
        ({"inputs": {"ids": [1, [1, 0]], "mask": [[1, 0]]}}, ""),
        ({"outputs": {"tokens": [1, [3, -16], 2], "pairs": [[2, -1]]}}, "tokens float32 1x-10x2 at 2"),
        ({"outputs": {"tokens": [1, [1, 0.0], 2], "pairs": [[2, -1]]}}, "dimension "),
        ({"outputs": {"tokens": [1, [-1, 16], 2], "pairs": [[2, -1]]}}, "dimension "),
        ({"text": {"mask": "other"}}, ""),
    ],
)
def test_a_malformed_range_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineError, match=f"^the range of a variant is malformed: .*{reason}"):
        opened(Sized(), **changed)


def test_a_range_is_the_same_after_json() -> None:
    assert parse_range(TABLE, LARGEST).as_json() == TABLE
    assert json.loads(json.dumps(parse_range(TABLE, LARGEST).as_json())) == TABLE


def test_inputs_fit_a_range_if_all_have_one_size() -> None:
    assert [size for size in range(12) if shape_of(shapes(), {"ids": (1, size), "mask": (1, size)})] == list(
        range(2, 9)
    )
    assert shape_of(shapes(), {"ids": (1, 3), "mask": (1, 4)}) is None
    assert shape_of(shapes(), {"ids": (1, 3), "mask": (1, 3, 1)}) is None
    assert takes(shapes(), "ids", (1, 3))
    assert not takes(shapes(), "ids", (2, 3))
    assert together(shapes()) == ["ids=1x2..8, mask=1x2..8"]
    assert list(fitted(feeds_of(3), shapes())) == ["ids", "mask"]
    with pytest.raises(
        UsageError, match=r"^input ids has shape 1x9; int64 1x2\.\.8 is expected: shapes are f"
    ):
        fitted(feeds_of(9), shapes())
    with pytest.raises(UsageError, match=r"have shapes ids=1x3, mask=1x4, which the bundle does"):
        fitted({**feeds_of(3), "mask": feeds_of(4)["mask"]}, shapes())


def test_outputs_are_those_of_one_size() -> None:
    checks = OutputChecks(OUTPUTS, [], shapes())
    for size in (2, 3, 8):
        checks.check(Sized().run(feeds_of(size)))
    for size in (1, 9):
        with pytest.raises(EngineError, match="it returned"):
            checks.check(Sized().run(feeds_of(size)))
    mixed = Sized().run(feeds_of(3)) | {"pairs": np.zeros(7, np.float32)}
    with pytest.raises(EngineError, match="it returned"):
        checks.check(mixed)

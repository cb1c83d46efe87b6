"""Batches: only of one model whose rows do not mix, only where it pays, never beyond a deadline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.errors import NoVariantError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.scheduling import batching as rooms
from edgekit.runtime.scheduling.batching import Batching
from edgekit.runtime.scheduling.request_queue import Requests
from edgekit.tensor_spec import Array
from tests.fixtures.models import write
from tests.runtime.scheduling.counted import Counted, takes

pytestmark = pytest.mark.needs_ort

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
rows (float[N,4] x) => (float[N,4] y, float[N,2] z)
{
    weight = Constant<value = float[4,2] {1,0.5, 2,-1, 3,0.25, -4,1}>()
    y = Relu(x)
    z = MatMul(x, weight)
}
"""
MIXES = MODEL.replace("y = Relu(x)", "middle = ReduceMean<axes=[0]>(x) y = Add(x, middle)")
SIZE = 4


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rows")
    found = {}
    for name, text in (("rows", MODEL), ("mixes", MIXES)):
        model = write(folder, text, f"{name}.onnx")
        for rows in (1, SIZE):
            bundle = edgekit.build(model, targets=["ort"], shapes={"x": (rows, 4)})
            found[f"{name}-{rows}"] = bundle.save(folder / f"{name}-{rows}.edgekit")
    return found


@pytest.fixture
def pair(paths: dict[str, Path]) -> Iterator[tuple[Session, Session]]:
    with (
        Session(paths["rows-1"], threads=1) as one,
        Session(paths[f"rows-{SIZE}"], threads=1) as many,
    ):
        yield one, many


def rows(count: int, seed: int = 0) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(1, 4)).astype(np.float32)} for _ in range(count)]


def test_rows_are_answered_as_alone(pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, 1.0, 1.5)
    batching = Batching(*pair)
    (batch,) = batching.batches.values()
    assert (batching.size, batch.min_requests, batch.ratio, batch.batch_s) == (SIZE, 2, 4 / 1.5, 0.0015)
    assert repr(batching) == "<Batching: 4 in one run, 2.67 x as fast; from 2 requests on>"
    for count in range(1, SIZE + 1):
        given = rows(count)
        answers = batching.run(given)
        assert len(answers) == count
        for feeds, answer in zip(given, answers, strict=True):
            for name, alone in pair[0].run(feeds).items():
                np.testing.assert_allclose(answer[name], alone, rtol=1e-6)
                assert answer[name].base is None  # the caller's: no batch is kept by it


@pytest.mark.parametrize(
    ("many_ms", "least", "pays"),
    [(1.1, 2, True), (1.9, 3, True), (2.5, 3, True), (3.5, 4, True), (3.7, 5, False), (9.0, 10, False)],
)
def test_so_many_requests_pay(
    pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch, many_ms: float, least: int, pays: bool
) -> None:
    takes(monkeypatch, 1.0, many_ms)
    batching = Batching(*pair)
    (batch,) = batching.batches.values()
    assert (batch.min_requests, batching.pays) == (least, pays)


def test_what_does_not_pay_is_off(pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, 1.0, 3.7)
    batching = Batching(*pair)
    assert not batching.pays
    assert repr(batching) == "<Batching: 4 in one run, 1.08 x as fast; never>"
    counted = Counted(pair[0])
    counted.open.clear()
    with Requests(counted, batching=batching) as requests:  # type: ignore[arg-type]
        futures = [requests.run_async(each) for each in rows(9)]
        counted.open.set()
        assert [future.result(10)["z"].shape for future in futures] == [(1, 2)] * 9
        assert (counted.runs, requests.counts()["together"]) == (9, 0)


def test_it_is_measured_once_a_device(
    pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch, paths: dict[str, Path]
) -> None:
    measured = takes(monkeypatch, 1.0, 1.5)
    first, again = Batching(*pair), Batching(*pair)
    assert repr(first) == repr(again)
    assert len(measured) == 1
    with Session(paths["rows-1"], threads=2) as one, Session(paths[f"rows-{SIZE}"], threads=2) as many:
        Batching(one, many)
    assert len(measured) == 2


def test_it_is_really_measured(pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MEASURED_S", 0.05)
    batching = Batching(*pair)
    one_ms, many_ms = rooms.compared(pair[0], batching, pair[0].inputs)
    assert 0 < one_ms < 1000
    assert 0 < many_ms < 1000


def test_those_that_wait_are_answered_together(
    pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(monkeypatch, 1.0, 1.5)
    counted, given = Counted(pair[0]), rows(10)
    counted.open.clear()
    with Requests(counted, batching=Batching(*pair)) as requests:  # type: ignore[arg-type]
        futures = [requests.run_async(given[0])]
        assert counted.running.wait(10)
        futures += [requests.run_async(each) for each in given[1:]]
        counted.open.set()
        answers = [future.result(10) for future in futures]
        # One alone, for nobody waited; then four, four, and the last alone.
        assert (requests.counts()["together"], counted.runs) == (8, 2)
    for feeds, answer in zip(given, answers, strict=True):
        np.testing.assert_allclose(answer["z"], pair[0].run(feeds)["z"], rtol=1e-6)


def test_one_waits_for_others_so_long_and_no_longer(
    pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(monkeypatch, 1.0, 1.5)
    batching = Batching(*pair)
    with Requests(pair[0], batching=batching, delay_ms=600_000) as requests:
        futures = [requests.run_async(each) for each in rows(SIZE)]
        for future in futures:
            future.result(60)  # the batch is full: nobody waits 10 minutes
        assert requests.counts()["together"] == SIZE
    with Requests(pair[0], batching=batching, delay_ms=30) as requests:
        requests.run_async(rows(1)[0]).result(60)
        assert requests.counts()["together"] == 0


def test_no_batch_is_waited_for_beyond_a_deadline(
    pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes 48 s here, so with 60 s left nobody waits and nobody joins."""
    takes(monkeypatch, 36_000.0, 48_000.0)
    counted = Counted(pair[0])
    with Requests(counted, batching=Batching(*pair), delay_ms=600_000) as requests:  # type: ignore[arg-type]
        futures = [requests.run_async(each, deadline_ms=60_000) for each in rows(3)]
        for future in futures:
            future.result(60)  # nobody waits 10 minutes
        assert (counted.runs, requests.counts()["together"]) == (3, 0)


def test_one_that_fails_fails_alone(pair: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, 1.0, 1.5)
    given = rows(SIZE)
    given[2]["x"][0, 1] = np.nan
    with Requests(pair[0], batching=Batching(*pair), delay_ms=600_000) as requests:
        futures = [requests.run_async(each) for each in given]
        for place, future in enumerate(futures):
            if place == 2:
                with pytest.raises(NoVariantError):
                    future.result(10)
            else:
                np.testing.assert_allclose(future.result(10)["z"], pair[0].run(given[place])["z"], rtol=1e-6)
        assert (requests.counts()["answered"], requests.counts()["together"]) == (SIZE, 0)


def test_rows_that_mix_are_refused(paths: dict[str, Path]) -> None:
    with (
        Session(paths["mixes-1"], threads=1) as one,
        Session(paths[f"mixes-{SIZE}"], threads=1) as many,
        pytest.raises(UsageError) as error,
    ):
        Batching(one, many)
    assert str(error.value) == (
        f"{paths[f'mixes-{SIZE}']}: output y of a row in a batch differs from the same row alone: "
        "rows depend on each other, or ort-fp32 and ort-fp32 differ too much"
    )


def test_what_is_no_batch_is_refused(paths: dict[str, Path]) -> None:
    with Session(paths["rows-1"], threads=1) as one, Session(paths[f"mixes-{SIZE}"], threads=1) as other:
        with pytest.raises(UsageError, match=r"are not from the same model$"):
            Batching(one, other)
        with pytest.raises(UsageError) as error:
            Batching(one, one)
        assert str(error.value) == (
            f"{paths['rows-1']} has no batches of {paths['rows-1']}'s inputs and outputs: x float32 1x4, "
            "y float32 1x4, z float32 1x2, for x float32 1x4, y float32 1x4, z float32 1x2; "
            "build it for these shapes"
        )
    with (
        Session(paths["rows-1"], threads=1) as one,
        Session(paths[f"rows-{SIZE}"], threads=2) as many,
        pytest.raises(UsageError, match=r"^both sessions must have the same threads, not 1 and 2$"),
    ):
        Batching(one, many)


@pytest.mark.parametrize(
    "target",
    [
        "ort",
        pytest.param("openvino", marks=pytest.mark.needs_openvino),
        pytest.param("tflite", marks=pytest.mark.needs_tflite),
    ],
)
def test_each_engine_answers_rows_as_alone_and_refuses_those_that_mix(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(monkeypatch, 1.0, 1.5)
    paths = {}
    for name, text in (("rows", MODEL), ("mixes", MIXES)):
        model = write(tmp_path, text, f"{name}.onnx")
        for count in (1, SIZE):
            bundle = edgekit.build(model, targets=[target], shapes={"x": (count, 4)})
            paths[name, count] = bundle.save(tmp_path / f"{name}-{count}.edgekit")
    given = rows(SIZE - 1)
    with Session(paths["rows", 1], threads=1) as one, Session(paths["rows", SIZE], threads=1) as many:
        assert many.active.variant == f"{target}-fp32"
        with Requests(one, batching=Batching(one, many), delay_ms=100) as requests:
            answers = [future.result(10) for future in [requests.run_async(each) for each in given]]
            assert requests.counts()["together"] == len(given)
        for feeds, answer in zip(given, answers, strict=True):
            np.testing.assert_allclose(answer["y"], np.maximum(feeds["x"], 0), rtol=1e-6)
            np.testing.assert_allclose(answer["z"], one.run(feeds)["z"], rtol=1e-5)
    with (
        Session(paths["mixes", 1], threads=1) as one,
        Session(paths["mixes", SIZE], threads=1) as many,
        pytest.raises(UsageError, match="rows depend on each other"),
    ):
        Batching(one, many)

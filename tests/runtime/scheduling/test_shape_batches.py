"""Batches of a bundle with several shapes: each has requests of one shape, and pays there or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.runtime.scheduling import batching as rooms
from edgekit.runtime.scheduling.batching import Batching
from edgekit.runtime.scheduling.request_queue import Requests
from edgekit.tensor_spec import Array
from tests.fixtures.models import write
from tests.runtime.scheduling.counted import Counted, takes

pytestmark = pytest.mark.needs_ort

SIZE = 4
IMAGES = """
<ir_version: 8, opset_import: ["": 17]>
images (float[N,2,S] x) => (float[N,1,S] y)
{
    weight = Constant<value = float[1,2] {2,3}>()
    y = MatMul(weight, x)
}
"""
SHORT, LONG = 3, 5


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles of two shapes, with 1 and SIZE rows, and one of another shape."""
    folder = tmp_path_factory.mktemp("images")
    model = write(folder, IMAGES, "images.onnx")
    sizes = {"one": (1, SHORT, LONG), "many": (SIZE, SHORT, LONG), "other": (SIZE, SHORT, LONG + 1)}
    return {
        name: edgekit.build(model, targets=["ort"], shapes={"x": [(rows, 2, short), (rows, 2, long)]}).save(
            folder / f"{name}.edgekit"
        )
        for name, (rows, short, long) in sizes.items()
    }


@pytest.fixture
def both(shapes: dict[str, Path]) -> Iterator[tuple[Session, Session]]:
    with Session(shapes["one"], threads=1) as one, Session(shapes["many"], threads=1) as many:
        yield one, many


def images(sizes: list[int]) -> list[dict[str, Array]]:
    random = np.random.default_rng(1)
    return [{"x": random.normal(size=(1, 2, size)).astype(np.float32)} for size in sizes]


def test_a_batch_has_requests_of_one_shape(
    both: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = takes(monkeypatch, 1.0, 1.5)
    counted, requested = Counted(both[0]), images([SHORT] + [SHORT, LONG] * SIZE)
    batching = Batching(*both)
    assert len(measured) == 2
    assert repr(batching) == (
        "<Batching: 4 in one run, 2.67 x as fast at 1x2x3; from 2 requests on, 2.67 x as fast at 1x2x5; "
        "from 2 requests on>"
    )
    counted.open.clear()
    with Requests(counted, batching=batching) as requests:  # type: ignore[arg-type]
        futures = [requests.run_async(requested[0])]
        assert counted.running.wait(10)
        futures += [requests.run_async(each) for each in requested[1:]]
        counted.open.set()
        outputs = [future.result(10) for future in futures]
        assert (requests.counts()["together"], counted.runs) == (2 * SIZE, 1)
    for feeds, output in zip(requested, outputs, strict=True):
        expected = 2 * feeds["x"][:, :1] + 3 * feeds["x"][:, 1:]
        np.testing.assert_allclose(output["y"], expected, rtol=1e-5)


def test_a_shape_where_no_batch_pays_runs_alone(
    both: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([(1.0, 1.5), (1.0, 9.0)])
    monkeypatch.setattr(rooms, "compared", lambda *_: next(times))
    counted, batching = Counted(both[0]), Batching(*both)
    assert batching.pays
    with Requests(counted, batching=batching, delay_ms=600_000) as requests:  # type: ignore[arg-type]
        for each in images([LONG, LONG]):
            requests.run(each)  # without a delay, as it cannot join a batch
        for future in [requests.run_async(each) for each in images([SHORT] * SIZE)]:
            future.result(10)
        assert (counted.runs, requests.counts()["together"]) == (2, SIZE)


def test_no_batch_goes_ahead_of_a_more_urgent_class(
    both: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(monkeypatch, 1.0, 1.5)
    counted, ended = Counted(both[0]), []
    counted.open.clear()
    with Requests(counted, batching=Batching(*both)) as requests:  # type: ignore[arg-type]
        blocking = requests.run_async(images([LONG])[0])
        assert counted.running.wait(10)
        futures = []
        for priority, size in ((1, SHORT), (2, LONG), (3, SHORT), (3, SHORT)):
            future = requests.run_async(images([size])[0], priority=priority)
            future.add_done_callback(lambda _, priority=priority: ended.append(priority))  # type: ignore[misc]
            futures.append(future)
        counted.open.set()
        for future in (blocking, *futures):
            future.result(10)
        assert ended == [1, 2, 3, 3]
        assert requests.counts()["together"] == 2


def test_the_queue_knows_how_long_each_shape_takes(
    both: tuple[Session, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(monkeypatch, 1.0, 1.5)
    counted = Counted(both[0])
    counted.open.clear()
    with Requests(counted, batching=Batching(*both)) as requests:  # type: ignore[arg-type]
        for time_s in (requests._one_s, requests._batch_s):
            for _ in range(200):
                time_s.took(100.0)  # a run, and a batch
        futures = [requests.run_async(images([LONG])[0])]
        assert counted.running.wait(10)
        futures += [requests.run_async(each) for each in images([SHORT, LONG] * 3)]
        # What runs, a batch of the short ones, and one of the long ones with the request.
        assert requests.expected_s() == pytest.approx(300, rel=0.02)
        counted.open.set()
        for future in futures:
            future.result(10)


def test_other_shapes_are_no_batches(shapes: dict[str, Path]) -> None:
    with (
        Session(shapes["one"], threads=1) as one,
        Session(shapes["other"], threads=1) as other,
        pytest.raises(UsageError) as error,
    ):
        Batching(one, other)
    assert str(error.value) == (
        f"{shapes['other']} has no batches of {shapes['one']}'s inputs and outputs: x float32 4x2x3, "
        "y float32 4x1x3 or x float32 4x2x6, y float32 4x1x6, for x float32 1x2x3, y float32 1x1x3 or "
        "x float32 1x2x5, y float32 1x1x5; build it for these shapes"
    )

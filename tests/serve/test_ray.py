"""Ray Serve on this machine: killed replicas, scaling by load, rolling updates. Some minutes on two cores;
skipped where ray (75 MB) is not installed: pip install '.[ray]'."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.serve.ray import deployment, infer
from tests.fixtures import models
from tests.fixtures.ports import unused_port

ray = pytest.importorskip("ray", reason="ray is not installed (75 MB: pip install '.[ray]')")
pytestmark = [pytest.mark.needs_ort, pytest.mark.slow]
SCALING = {"upscale_delay_s": 1, "downscale_delay_s": 30, "metrics_interval_s": 0.5, "look_back_period_s": 10}
FEEDS = {"left": np.ones((1, 8), np.float32), "right": np.full((1, 8), 2, np.float32)}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[int]:
    """The port of its HTTP."""
    from ray import serve

    for name in ("READY", "HEALTH"):  # a busy machine takes longer than the 5 and 10 s of Ray
        os.environ.setdefault(f"RAY_SERVE_PROXY_{name}_CHECK_TIMEOUT_S", "120")
    for left in range(9, -1, -1):
        try:
            ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
            break
        except Exception as problem:  # it gives itself 30 s to start, which a busy machine may exceed
            ray.shutdown()
            if "timed out during startup" not in str(problem) or not left:
                raise
    port = unused_port()  # Ray's own, 8000, may be another server's
    try:
        serve.start(http_options={"port": port})
        yield port
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    made = edgekit.build(models.write(folder, models.TWO_INPUTS), targets=["ort"])
    return made.save(folder / "two.edgekit")


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Runs a deployment as an application of the test's own."""
    from ray import serve

    name = request.node.name

    def run(bundles: dict[str, Path], **options: Any) -> Any:
        made = deployment(bundles, deadline_ms=60_000, cpus=0.5, **options)
        return serve.run(made, name=name, route_prefix="/two")

    yield run
    serve.delete(name)


def pids() -> list[int]:
    """Processes of the replicas that run."""
    from ray.serve.context import _get_global_client

    applications = _get_global_client().get_serve_details()["applications"].values()
    deployments = [d for application in applications for d in application["deployments"].values()]
    replicas = [replica for each in deployments for replica in each["replicas"]]
    return [int(replica["pid"]) for replica in replicas if replica["state"] == "RUNNING"]


def wait_for(count: int, seconds: float = 900.0) -> None:
    until = time.monotonic() + seconds
    while len(pids()) != count:
        assert time.monotonic() < until, pids()
        time.sleep(0.2)


def under_load(handle: Any, during: Callable[[], None], callers: int = 4) -> int:
    """How many requests were answered, all of them rightly, while something happens."""
    ended, expected = threading.Event(), 3 * np.ones((1, 8), np.float32)

    def ask() -> int:
        count = 0
        while not ended.is_set():
            np.testing.assert_array_equal(infer(handle, FEEDS)["sum"], expected)
            count += 1
        return count

    with ThreadPoolExecutor(callers) as executor:
        asking = [executor.submit(ask) for _ in range(callers)]
        try:
            during()
        finally:
            ended.set()
        answered = sum(each.result() for each in asking)
    print(f"{answered} requests answered, none failed")
    return answered


def test_a_killed_replica_costs_no_request(served: Callable[..., Any], bundle: Path) -> None:
    handle = served({"two": bundle}, min_replicas=2, max_replicas=2)
    wait_for(2)

    def kill_one() -> None:
        time.sleep(1.0)
        before = pids()
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        until = time.monotonic() + 300
        while before[0] in pids() or len(pids()) < 2:
            assert time.monotonic() < until
            time.sleep(0.2)

    assert under_load(handle, kill_one) > 10


def test_it_scales_up_and_down_by_load(served: Callable[..., Any], bundle: Path) -> None:
    handle = served({"two": bundle}, min_replicas=1, max_replicas=3, requests_a_replica=1.0, scaling=SCALING)
    wait_for(1)
    under_load(handle, lambda: wait_for(3), callers=12)
    wait_for(1)


def test_a_rolling_update_fails_no_request(served: Callable[..., Any], bundle: Path) -> None:
    handle = served({"two": bundle}, min_replicas=2, max_replicas=2)
    wait_for(2)
    other = bundle.with_name("other.edgekit")
    other.write_bytes(bundle.read_bytes())
    before = pids()

    def update() -> None:
        served({"two": other}, min_replicas=2, max_replicas=2)
        wait_for(2)

    under_load(handle, update)
    assert not set(before) & set(pids())


def test_several_models_share_a_replica(served: Callable[..., Any], bundle: Path) -> None:
    handle = served({"one": bundle, "other": bundle}, max_models=1)
    for name in ("one", "other", "one"):
        assert infer(handle, FEEDS, name)["sum"].tolist() == [[3.0] * 8]
    with pytest.raises(UsageError) as error:
        infer(handle, FEEDS, "third")
    assert str(error.value) == "unknown model 'third'; available: one, other"


def test_over_http_it_speaks_the_open_protocol(
    served: Callable[..., Any], bundle: Path, cluster: int
) -> None:
    import json
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    served({"two": bundle})
    url = f"http://127.0.0.1:{cluster}/two/v2/models/two"
    tensors = [
        {"name": name, "shape": [1, 8], "datatype": "FP32", "data": array.reshape(-1).tolist()}
        for name, array in FEEDS.items()
    ]
    with urlopen(Request(f"{url}/infer", json.dumps({"inputs": tensors}).encode()), timeout=60) as answer:
        (output,) = json.load(answer)["outputs"]
    assert (output["name"], output["data"]) == ("sum", [3.0] * 8)
    with urlopen(url, timeout=60) as answer:
        assert [entry["name"] for entry in json.load(answer)["inputs"]] == ["left", "right"]
    with pytest.raises(HTTPError) as error:
        urlopen(Request(f"{url}x/infer", b"{}"), timeout=60)
    assert error.value.code == 404
    assert json.load(error.value)["error"] == "unknown model 'twox'; available: two"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas must be at most max_replicas, that and kept"),
        (
            {"kept": 0},
            "min_replicas must be at most max_replicas, max_replicas and kept at least 1, and deadline_ms",
        ),
    ],
)
def test_wrong_numbers_are_refused(bundle: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        deployment({"two": bundle}, **options)
    assert str(error.value).startswith(message)

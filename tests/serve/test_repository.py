"""Models that come and go while requests run: candidates, their health, unloading, memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from edgekit.errors import EngineError, UsageError
from edgekit.processing.card import parse_card
from edgekit.runtime.store.health import HealthWindow
from edgekit.serve import model_table
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.served_model import ServedModel, ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.service import CHANGES, Access, Service
from tests.fixtures.classifiers import CARD, vectors
from tests.fixtures.servers import Running, held

pytestmark = pytest.mark.needs_ort
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": vectors(1)[0]["x"].ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Repository:
    """A server with version 1 of one model, and a folder that others can be put in."""

    def __init__(self, folder: Path, bundle: Path, **options: Any) -> None:
        self.folder, self.bundle, self.clock = folder, bundle, Clock()
        self.add(1)
        window = HealthWindow(60, 5)
        serve = ServeOptions(threads=1, deadline_ms=30_000)
        models = ServedModels({}, serve, repository=folder, window=window, clock=self.clock, **options)
        self.server = Running(models)

    def add(self, version: int) -> None:
        with Bundle.open(self.bundle) as opened:
            with_version(opened, version).save(self.folder / f"small-{version}.edgekit")

    def post(self, path: str, body: Any = b"") -> tuple[int, Any]:
        status, _, content = self.server.ask("POST", path, body)
        return status, json.loads(content)

    def load(self, **parameters: Any) -> tuple[int, Any]:
        return self.post("/v2/repository/models/small/load", json.dumps({"parameters": parameters}))

    def answers(self, count: int = 1) -> set[str]:
        """The versions that answer."""
        found = set()
        for _ in range(count):
            status, answer = self.post("/v2/models/small/infer", ASK)
            assert status == 200, answer
            found.add(answer["model_version"])
        return found

    def states(self) -> dict[str, tuple[str, str]]:
        rows = self.post("/v2/repository/index")[1]
        return {row["version"]: (row["state"], row["reason"]) for row in rows if row["name"] == "small"}


@pytest.fixture
def repository(tmp_path: Path, bundles: tuple[Path, Path]) -> Iterator[Repository]:
    found = Repository(tmp_path, bundles[0])
    yield found
    found.server.close()


def test_a_candidate_is_committed_after_its_window(repository: Repository) -> None:
    repository.add(2)
    assert repository.answers() == {"1"}
    assert repository.load() == (200, {})
    assert repository.answers(10) == {"2"}
    assert repository.states() == {
        "1": ("READY", ""),
        "2": ("READY", "candidate; 1 answers again if it does worse"),
    }
    repository.clock.now_s = 61
    assert repository.answers(1) == {"2"}
    assert repository.states() == {"1": ("UNAVAILABLE", "2 was committed"), "2": ("READY", "")}
    assert repository.load(version="1") == (200, {})  # and back by hand
    assert repository.answers() == {"1"}


def test_a_candidate_that_fails_is_given_up(
    repository: Repository, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.answers(20)
    repository.add(2)
    repository.load()
    session = repository.server.models.find("small", "2").session

    def fails(feeds: Any) -> Any:
        raise EngineError("the kernel died")

    monkeypatch.setattr(session, "run", fails)
    for _ in range(30):
        if repository.states()["2"][0] != "READY":
            break
        repository.post("/v2/models/small/infer", ASK)
    assert repository.answers(3) == {"1"}
    state, why = repository.states()["2"]
    assert (state, "answers failed or used a fallback" in why) == ("UNAVAILABLE", True)
    assert "small 2 is given up, 1 answers" in capfd.readouterr().err
    assert repository.load() == (200, {})  # the newest that was not given up
    assert repository.answers() == {"1"}
    assert repository.load(version=2) == (200, {})
    assert repository.answers() == {"2"}


def test_what_can_not_be_loaded_changes_nothing(
    repository: Repository, capfd: pytest.CaptureFixture[str]
) -> None:
    (repository.folder / "half.edgekit").write_bytes(b"PK" + bytes(100))
    repository.add(2)
    damaged = bytearray((repository.folder / "small-2.edgekit").read_bytes())
    at = damaged.find(b"scores", len(damaged) // 4)
    damaged[at : at + 6] = b"SCORES"
    (repository.folder / "small-2.edgekit").write_bytes(damaged)
    status, answer = repository.load()
    assert status in (200, 409), answer  # damaged where it is not read at the start, it is a candidate
    assert "half.edgekit is left out" in capfd.readouterr().err
    assert repository.load(version=9) == (404, {"error": "there is no bundle of small 9"})
    assert repository.load(version=[]) == (
        400, {"error": 'parameters.version must be a version, e.g. "3"'},
    )  # fmt: skip
    assert repository.post("/v2/repository/models/small/load", b"[")[0] == 400
    assert repository.post("/v2/repository/models/none/unload")[0] == 404
    if status == 409:
        assert repository.answers() == {"1"}


def test_unloading_lets_requests_end(repository: Repository) -> None:
    answered: list[int] = []
    model = repository.server.models.find("small", None)

    def ask() -> None:
        answered.append(repository.post("/v2/models/small/infer", ASK)[0])

    with held(repository.server, "small") as until:
        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        until(3)
        assert repository.post("/v2/repository/models/small/unload") == (200, {})
        status, answer = repository.post("/v2/models/small/infer", ASK)
        assert (status, answer) == (404, {"error": "small is not loaded"})
        with (
            pytest.raises(RequestError, match="small 1 is not loaded now"),  # found before it was unloaded
            repository.server.models.used(("small", "1")),
        ):
            pass
        assert model.session.state == "ready"
    for thread in asking:
        thread.join()
    assert answered == [200] * 4
    assert repository.states() == {"1": ("UNAVAILABLE", "unloaded")}
    assert repository.load() == (200, {})
    assert repository.answers() == {"1"}


def test_swaps_under_load_lose_no_request(repository: Repository) -> None:
    repository.add(2)
    stop, wrong = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            status, answer = repository.post("/v2/models/small/infer", ASK)
            if status != 200:
                wrong.append(answer)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    try:
        for swap in range(10):
            assert repository.load(version=1 + (swap + 1) % 2) == (200, {})
    finally:
        stop.set()
        for thread in asking:
            thread.join()
    assert not wrong
    assert sum(state == "READY" for state, _ in repository.states().values()) <= 2


def test_the_least_recently_used_leaves_by_memory(tmp_path: Path, bundles: tuple[Path, Path]) -> None:
    clock = Clock()
    paths = {("a", "1"): (bundles[0],), ("b", "1"): (bundles[0],), ("c", "1"): (bundles[0],)}
    models = ServedModels(paths, ServeOptions(threads=1, deadline_ms=60_000), memory_bytes=1, clock=clock)
    server = Running(models)
    try:
        # One byte: only the one that was loaded last stays.
        assert [row["state"] for row in models.index()] == ["UNAVAILABLE", "UNAVAILABLE", "READY"]
        for name in ("a", "b", "a", "c"):
            clock.now_s += 1
            status, _, content = server.ask("POST", f"/v2/models/{name}/infer", ASK)
            assert status == 200, content
            ready = [row["name"] for row in models.index() if row["state"] == "READY"]
            assert ready == [name]
        assert server.get("/v2/models/a/ready")[0] == 503
        assert server.get("/v2/models/c/ready")[0] == 200
    finally:
        server.close()


def test_models_are_there_in_their_hours(
    tmp_path: Path, bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_table, "resident_bytes", lambda: 0)  # each takes the size of its file
    now = datetime(2026, 1, 5, 3)
    card = parse_card({**CARD, "schedule": {"hours": ["06:00-09:00"]}})
    made = edgekit.build(bundles[0].with_name("small.onnx"), targets=["ort"], card=card, trusted=True)
    served: dict[tuple[str, str], Any] = {("day", "1"): (made.save(tmp_path / "day.edgekit"),)}
    served |= {("b", "1"): (bundles[0],), ("c", "1"): (bundles[0],)}
    models = ServedModels(served, ServeOptions(threads=1))
    try:
        models._memory_bytes = sum(entry.size_bytes for entry in models._entries.values()) - 1
        models.calendar = lambda: now

        def ready() -> str:
            return "".join(row["name"] for row in models.index() if row["state"] == "READY")

        def ask(name: str) -> None:
            models.load_again((name, "1"))
            with models.used((name, "1")):
                pass

        for name in ("day", "b", "c"):  # its hours are over: the least recently used leaves
            ask(name)
        models._make_room(0, ("c", "1"))
        assert ready() == "bc"
        models.keep_hours()
        assert ready() == "bc"
        now = datetime(2026, 1, 5, 5, 56)
        models.keep_hours()
        assert ready() == "cday"
        ask("b")
        assert ready() == "bday"
        ask("c")  # what has its hours leaves last, however long ago it was asked for
        assert ready() == "cday"
        models._memory_bytes = 1
        models._retire(("day", "1"), "left by memory")
        models._entries["day", "1"].left_by_memory = True
        models.keep_hours()  # it does not fit
        assert ready() == "c"
    finally:
        models.close()


def test_what_is_closed_waits_for_the_load_that_runs_and_loads_nothing_more(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ServedModels({("net", "1"): (bundles[0],)}, ServeOptions(threads=1))
    models.unload("net")
    begun, go, made = threading.Event(), threading.Event(), ServedModel

    def slow(*args: Any, **options: Any) -> ServedModel:
        begun.set()
        assert go.wait(30)
        return made(*args, **options)

    monkeypatch.setattr(model_table, "ServedModel", slow)
    loading = threading.Thread(target=models.load, args=("net",))
    loading.start()
    assert begun.wait(30)
    closing = threading.Thread(target=models.close)
    closing.start()
    go.set()
    closing.join()
    loading.join()
    assert not list(models)
    with pytest.raises(RequestError, match="can't be loaded"):
        models.load("net")


def test_without_a_repository(bundles: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no bundle in"):
        ServedModels({}, ServeOptions(), repository=tmp_path)
    models = ServedModels({("net", "1"): (bundles[0],)}, ServeOptions(threads=1))
    try:
        assert models.load("net") == "1"
        with pytest.raises(RequestError, match="there is no bundle of other"):
            models.load("other")
        assert np.isfinite(models.find("net", None).limit_bytes)
    finally:
        models.close()


def test_more_loads_than_may_wait_are_refused(repository: Repository) -> None:
    """And a load whose client is gone ends as if it had waited."""
    go, loaded = threading.Event(), []

    class Slow:
        def load(self, name: str, version: str | None) -> None:
            go.wait(30)
            loaded.append(version)

    async def test() -> None:
        models: Any = Slow()
        service = Service(models, Access())
        calls = [asyncio.ensure_future(service.load("small", "1")) for _ in range(CHANGES)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()  # a client that is gone does not make place for another
        with pytest.raises(RequestError) as error:
            await service.load("small", "1")
        assert (error.value.status, str(error.value)) == (
            503,
            "8 loads and unloads are waiting; retry in 10 s",
        )
        go.set()
        await service.changes_ended()
        assert len(loaded) == CHANGES

    asyncio.run(test())

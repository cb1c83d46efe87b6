"""Workers that load and unload the same models; in one process here, by the sockets and files they have."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from edgekit.errors import EngineError
from edgekit.runtime.store.health import HealthWindow
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.service import CHANGES, Access, Service
from tests.fixtures.classifiers import vectors

worker_group = pytest.importorskip("edgekit.serve.worker_group", reason="Starlette is not installed")
pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(not worker_group.WorkerGroup.possible(), reason="this system has no Unix sockets"),
]
BROKEN = "the kernel died"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 107 characters at most
        yield Path(short)


@pytest.fixture
def repository(tmp_path: Path, bundle: Path) -> Path:
    for version in (1, 2, 3):
        with Bundle.open(bundle) as opened:
            with_version(opened, version).save(tmp_path / f"small-{version}.edgekit")
    return tmp_path


def test_a_worker_that_fails_to_follow_does_not_keep_the_others_waiting(folder: Path) -> None:
    class Models:
        def follow(self, state: Any) -> None:
            raise RuntimeError("a fault of follow")

    async def ask() -> str:
        (folder / worker_group.STATE).write_text("{}")
        group, path = worker_group.WorkerGroup(folder, Models()), folder / "own.sock"
        server = await asyncio.start_unix_server(group._receive, path)
        try:
            return await asyncio.wait_for(worker_group._ask(path), 60)
        finally:
            server.close()

    assert asyncio.run(ask()) == ""


class Worker:
    """A worker of the group, with the versions of a repository from 1 to ``newest``."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.now_s = 0.0
        self.models = ServedModels(
            {},
            ServeOptions(threads=1, deadline_ms=60_000),
            repository=repository,
            window=HealthWindow(60, 5),
            clock=lambda: self.now_s,
            state=worker_group.last_state(folder),
        )
        self.group = worker_group.WorkerGroup(folder, self.models)
        self.service = Service(self.models, Access(), group=self.group)

    @property
    def loaded(self) -> tuple[str | None, list[str]]:
        return self.models._current.get("small"), self.models.versions("small")

    def answer(self) -> None:
        model = self.models.find("small", None)
        with self.models.used(("small", model.version)), suppress(EngineError):
            model.requests.run(vectors(1)[0])


@asynccontextmanager
async def workers(folder: Path, repository: Path, count: int) -> AsyncIterator[list[Worker]]:
    async with AsyncExitStack() as stack:
        found = [Worker(folder, repository) for _ in range(count)]
        for each in found:
            stack.callback(each.models.close)
            await stack.enter_async_context(each.group.member())
        yield found


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(test(), 300)

    asyncio.run(whole())


def test_all_have_it_when_the_load_returns(folder: Path, repository: Path) -> None:
    async def test() -> None:
        async with workers(folder, repository, 3) as (one, two, three):
            assert [w.loaded for w in (one, two, three)] == [("3", ["3"])] * 3
            await two.service.load("small", "1")
            assert [w.loaded for w in (one, two, three)] == [("1", ["1", "3"])] * 3
            again = Worker(folder, repository)  # in place of one that died: not with the newest version
            try:
                assert again.loaded == ("1", ["1", "3"])
            finally:
                again.models.close()
            await one.service.unload("small", "3")
            assert [w.loaded for w in (one, two, three)] == [("1", ["1"])] * 3
            assert {row["version"]: row["reason"] for row in three.models.index()}["3"] == "unloaded"
            await asyncio.gather(one.service.load("small", "2"), two.service.load("small", "3"))
            assert one.loaded == two.loaded == three.loaded
            await three.service.unload("small", None)
            assert [w.loaded for w in (one, two, three)] == [(None, [])] * 3
            with pytest.raises(RequestError, match="there is no bundle of small 9"):
                await one.service.load("small", "9")

    run(test)


def test_a_load_whose_client_is_gone_ends_in_all_workers(
    folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC cancels the handler of a call whose deadline has passed, wherever it is."""

    async def test() -> None:
        async with workers(folder, repository, 2) as (one, two):
            loaded, fill = threading.Event(), one.models._fill

            def noted(key: Any, **options: Any) -> None:
                loaded.set()
                fill(key, **options)

            monkeypatch.setattr(one.models, "_fill", noted)
            call = asyncio.ensure_future(one.service.load("small", "1"))
            await asyncio.get_running_loop().run_in_executor(None, loaded.wait, 60)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await one.service.changes_ended()
            assert [w.loaded for w in (one, two)] == [("1", ["1", "3"])] * 2

    run(test)


def test_more_loads_than_may_wait_are_refused(folder: Path, repository: Path) -> None:
    async def test() -> None:
        # Another worker's change holds the lock.
        async with workers(folder, repository, 1) as (one,), one.group._only_worker():
            calls = [asyncio.ensure_future(one.service.load("small", "1")) for _ in range(CHANGES)]
            await asyncio.sleep(0)
            for call in calls:
                call.cancel()  # a client that is gone does not make place for another
            with pytest.raises(RequestError) as error:
                await asyncio.wait_for(one.service.load("small", "1"), 30)
            assert (error.value.status, str(error.value)) == (
                503,
                "8 loads and unloads are waiting; retry in 10 s",
            )

    run(test)


def test_where_one_can_not_follow_all_are_as_before(
    folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with workers(folder, repository, 2) as (one, two):
            fill = two.models._fill

            def fails(key: Any, **options: Any) -> None:
                if key[1] == "2":
                    raise MemoryError("no memory")
                fill(key, **options)

            monkeypatch.setattr(two.models, "_fill", fails)
            with pytest.raises(RequestError) as error:
                await one.service.load("small", "2")
            assert error.value.status == 409
            assert str(error.value).startswith(
                "another worker could not make the same change: small 2 can't be loaded; the server's log"
            )
            assert one.loaded == two.loaded == ("3", ["3"])
            await one.service.load("small", "1")
            assert one.loaded == two.loaded == ("1", ["1", "3"])

    run(test)
    assert "no memory" in capfd.readouterr().err


def test_a_candidate_is_judged_for_all(
    folder: Path, repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def until(true: Callable[[], bool]) -> None:
        while not true():
            await asyncio.sleep(0.01)

    async def test() -> None:
        async with workers(folder, repository, 2) as (one, two):
            await one.service.load("small", "2")
            session = two.models.find("small", "2").session

            def fails(feeds: Any) -> Any:
                raise EngineError(BROKEN)

            session.run = fails  # type: ignore[method-assign]
            for _ in range(30):
                two.answer()
            await until(lambda: one.loaded == two.loaded == ("3", ["3"]))
            assert one.models.state() == two.models.state()
            assert one.models.state()["small"]["given_up"] == ["2"]  # what is loaded next is no such version
            await one.service.load("small", "1")
            for _ in range(10):
                one.now_s += 61.0
                one.answer()
            await until(lambda: one.loaded == two.loaded == ("1", ["1"]))

    run(test)
    assert "small 2 is given up, 3 answers" in capfd.readouterr().err


def test_who_takes_a_dead_workers_place_tells_its_last_change(folder: Path, repository: Path) -> None:
    async def test() -> None:
        async with workers(folder, repository, 2) as (one, two):
            one.models.load("small", "1")
            one.group._write(one.models.state())  # and ends before it tells the other
            assert two.loaded == ("3", ["3"])
            async with workers(folder, repository, 1) as (three,):
                assert two.loaded == three.loaded == ("1", ["1", "3"])

    run(test)


def test_what_a_dead_worker_left_is_passed_over(folder: Path, repository: Path) -> None:
    async def test() -> None:
        async with workers(folder, repository, 1) as (one,):
            import socket

            dead = socket.socket(socket.AF_UNIX)
            dead.bind(str(folder / "dead.sock"))
            dead.close()
            await one.service.load("small", "2")
            assert one.loaded == ("2", ["2", "3"])
            assert not (folder / "dead.sock").exists()
            assert sorted(json.loads((folder / "models.state").read_text())) == ["small"]
        assert not list(folder.glob("*.sock"))

    run(test)


def test_one_that_hangs_up_is_no_problem(folder: Path, repository: Path) -> None:
    async def test() -> None:
        async with workers(folder, repository, 1) as (one,):

            async def hangs_up(reader: Any, writer: Any) -> None:
                writer.close()

            server = await asyncio.start_unix_server(hangs_up, folder / "other.sock")
            await one.group.change(partial(one.models.load, "small", "1"))
            server.close()
            assert one.loaded[0] == "1"

    run(test)
    assert os.listdir(folder)

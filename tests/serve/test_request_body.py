"""Bodies, bounded in size and time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgekit.serve import request_body
from edgekit.serve.inference_requests import RequestError


def test_a_body_that_does_not_come_in_time_leaves_its_task_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a timeout around what follows would take it for a cancellation from elsewhere."""
    monkeypatch.setattr(request_body, "BODY_SECONDS", 0.01)

    async def never() -> Any:
        await asyncio.Event().wait()

    async def read() -> int:
        with pytest.raises(RequestError, match="did not arrive within") as late:
            await request_body.read_body({}, never, 9)
        assert late.value.status == 408
        task: Any = asyncio.current_task()
        return task.cancelling() if hasattr(task, "cancelling") else 0  # from Python 3.11 on

    assert asyncio.run(read()) == 0


def test_a_cancellation_from_elsewhere_is_one() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.ensure_future(request_body.read_body({}, never, 9))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_a_body_that_says_it_is_far_too_large_is_not_read() -> None:
    async def never() -> Any:
        raise AssertionError("nothing of it is read")

    size = str(9 + request_body.DISCARDED_BYTES + 1).encode()
    with pytest.raises(RequestError, match="larger than this model's limit of 9 bytes") as large:
        asyncio.run(request_body.read_body({b"content-length": size}, never, 9))
    assert large.value.status == 413


def test_the_first_part_of_a_body_is_not_taken_for_all_of_it() -> None:
    messages = iter(({"type": "http.request", "body": b"{}", "more_body": True}, {"type": "http.disconnect"}))

    async def receive() -> Any:
        return next(messages)

    with pytest.raises(RequestError, match="the client closed the connection"):
        asyncio.run(request_body.read_body({}, receive, 9))


def test_a_slow_line_that_sends_steadily_has_the_time_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    size, seconds = 5_000_000, 60  # a photograph over 3G
    assert all(at < request_body.body_seconds(size * at // seconds) for at in range(seconds + 1))
    assert request_body.body_seconds(60) < 31  # a byte a second
    monkeypatch.setattr(request_body, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(request_body, "BYTES_PER_SECOND", 1)
    left = 5

    async def receive() -> Any:
        nonlocal left
        left -= 1
        await asyncio.sleep(0 if left == 4 else 0.05)
        return {"type": "http.request", "body": b"x" * 100, "more_body": left > 0}

    assert asyncio.run(request_body.read_body({}, receive, 500)) == b"x" * 500


def test_the_servers_deadline_counts_from_when_a_request_has_come() -> None:
    """A client's own timeout counts from its first byte; see test_deadlines."""
    from edgekit.serve.inference_requests import Request
    from edgekit.serve.served_model import ServedModel, ServeOptions

    class Queue:
        left_ms: float

        def run_async(self, feeds: Any, left_ms: float, priority: int, record: Any) -> Any:
            self.left_ms = left_ms

    class Outcomes:
        def answered(self, outcome: str) -> None:
            assert outcome == "refused"

    model: Any = ServedModel.__new__(ServedModel)
    model.options, model.requests, model.metrics = ServeOptions(deadline_ms=1000), Queue(), Outcomes()
    model.overdue = lambda problem: RequestError(str(problem), 503, 1)
    model.run(Request({}, {}, "", None), 60.1, 60.0)
    assert model.requests.left_ms == pytest.approx(900)
    model.run(Request({}, {}, "", 60_500.0), 60.1, 60.0)
    assert model.requests.left_ms == pytest.approx(400)
    with pytest.raises(RequestError, match="not run: its deadline of 500 ms passed while it was read"):
        model.run(Request({}, {}, "", 500.0), 60.1, 60.0)

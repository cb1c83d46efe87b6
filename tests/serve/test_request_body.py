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
        with pytest.raises(RequestError, match="did not come within") as late:
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

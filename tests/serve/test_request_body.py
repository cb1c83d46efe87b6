"""Bodies, bounded in size and time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgekit.serve import request_memory
from edgekit.serve.inference_requests import RequestError


def test_a_cancellation_from_elsewhere_is_one() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.ensure_future(request_memory.read_body({}, never, 9))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_a_body_that_says_it_is_far_too_large_is_not_read() -> None:
    async def never() -> Any:
        raise AssertionError("nothing of it is read")

    size = str(9 + request_memory.DISCARDED_BYTES + 1).encode()
    with pytest.raises(RequestError, match="larger than this model's limit of 9 bytes") as large:
        asyncio.run(request_memory.read_body({b"content-length": size}, never, 9))
    assert large.value.status == 413


def test_the_first_part_of_a_body_is_not_taken_for_all_of_it() -> None:
    messages = iter(({"type": "http.request", "body": b"{}", "more_body": True}, {"type": "http.disconnect"}))

    async def receive() -> Any:
        return next(messages)

    with pytest.raises(RequestError, match="the client closed the connection"):
        asyncio.run(request_memory.read_body({}, receive, 9))

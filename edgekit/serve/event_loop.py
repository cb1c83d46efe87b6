"""The event loop of a server: uvloop's where it is installed, with a time limit on handshakes of TLS."""

from __future__ import annotations

import asyncio
from typing import Any

HANDSHAKE_SECONDS = 15.0
"""In which a handshake must have ended. uvicorn has no option for it, and the loops wait a minute."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for uvicorn."""
    loop: Any
    try:
        import uvloop
    except ImportError:  # Windows
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    create_server = loop.create_server

    async def with_limit(*config: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE_SECONDS
        return await create_server(*config, **options)

    loop.create_server = with_limit
    event_loop: asyncio.AbstractEventLoop = loop
    return event_loop

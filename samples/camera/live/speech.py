"""Speech: the sound of a page's microphone or file as text, while it comes."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

from edgekit.errors import EdgeKitError
from edgekit.runtime import Session, Transcriber, TranscriptUpdate
from live.access import RefusedError

SPEAKERS = 2
"""Most sounds at once: each one takes a core."""
SEND_S = 10.0
"""A page that takes no byte for so long is gone."""


class Speech:
    """Transcribes sounds.

    Args:
        bundle: A speech model.
        voice_activity: A model that finds the pauses; None: loudness does.
        engine: The one to try first; None: the best.
    """

    def __init__(self, bundle: Path, voice_activity: Path | None = None, engine: str | None = None) -> None:
        self._session = Session(bundle, engine=engine)
        try:
            self._voice = None if voice_activity is None else Session(voice_activity, threads=1)
            self._transcriber()  # what does not fit is reported at the start
        except BaseException:
            self._session.close()
            raise
        self._speakers = 0

    def _transcriber(self) -> Transcriber:
        return Transcriber(self._session, voice_activity=self._voice)

    async def transcribe(self, socket: web.WebSocketResponse) -> None:
        """Read blocks from a socket, int16 mono at 16 kHz, and send the updates of each; "end" ends a sound.

        Raises:
            RefusedError: others speak.
        """
        if self._speakers >= SPEAKERS:
            raise RefusedError(503, f"{SPEAKERS} sounds are transcribed already; wait until one ends")
        self._speakers += 1
        loop, transcriber = asyncio.get_running_loop(), self._transcriber()
        try:
            async for message in socket:
                if message.type == WSMsgType.BINARY and message.data and len(message.data) % 2 == 0:
                    block = np.frombuffer(message.data, "<i2").astype(np.int16)
                    reply = await loop.run_in_executor(None, self._updates, transcriber, block)
                elif message.type == WSMsgType.TEXT and message.data == "end":
                    reply = await loop.run_in_executor(None, self._updates, transcriber, None)
                    transcriber = self._transcriber()
                else:
                    break
                await asyncio.wait_for(socket.send_json(reply), SEND_S)
        finally:
            self._speakers -= 1

    def _updates(self, transcriber: Transcriber, block: Any) -> dict[str, Any]:
        """Feed a block, or end the sound."""
        found: list[TranscriptUpdate] = []
        error = ""
        try:
            found = transcriber.finish() if block is None else transcriber.feed(block)
        except EdgeKitError as problem:  # every variant failed; the next block may work again
            error = str(problem).splitlines()[0]
        variant = self._session.active.variant
        return {"updates": [update.as_json() for update in found], "variant": variant, "error": error}

    def close(self) -> None:
        """Free the engines."""
        for session in (self._session, self._voice):
            if session is not None:
                with contextlib.suppress(EdgeKitError):
                    session.close()

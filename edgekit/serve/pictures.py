"""Predictions for images by a model's card: one by one, over a WebSocket, and as a stream of events.

An image is decoded and prepared as ``Session.predict`` does it, and its run waits in the model's queue like
any other request. Whoever listens to a model's events gets every prediction that this process makes for it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from threading import Thread

import numpy as np
from starlette.concurrency import run_in_threadpool

from edgekit.errors import CardError, EdgeKitError, SampleError, UsageError
from edgekit.processing.picture_files import decode_picture, picture_pixels
from edgekit.serve.inference_requests import Request, RequestError
from edgekit.serve.request_memory import Lease
from edgekit.serve.request_traces import traced
from edgekit.serve.served_model import ServedModel
from edgekit.serve.service import Service
from edgekit.tensor_spec import Json

PICTURE_BYTES = 32 << 20
"""Of an image as a file."""
DECODED_BYTES = 14
"""Memory of a pixel while an image is decoded: 4 bytes as Pillow has it, 4 more turned upright, 3 as an
array, and 3 resized."""
KEPT = 64
"""Events of a model that are kept for those who come back."""
LISTENERS = 64
EVENT_SECONDS = 20.0
"""After which a stream of events ends; clients of the standard (EventSource) come back by themselves and get
what they missed. Shorter than the time for which a server that ends waits."""


class Pictures:
    """Predictions of the models of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._decoding = asyncio.Semaphore(max(1, (os.cpu_count() or 1) // 2))  # each may take 200 MB
        self._feeds: dict[str, _Feed] = {}
        Thread(target=self._import_all, name="edgekit-pictures", daemon=True).start()

    def _import_all(self) -> None:
        """Import what the first image needs: a tenth of a second here, and on a slow device more than the
        deadline of its request."""
        with suppress(ImportError):
            import simplejpeg  # noqa: F401
        with suppress(EdgeKitError):
            picture_pixels(b"", "no image")
        for _, model in self._service.models.current():
            if isinstance(model, ServedModel):
                with suppress(EdgeKitError):
                    source = model.session.card.image_input()
                    model.session.prepare(np.zeros((source.height, source.width, 3), np.uint8))

    def check(self, model: ServedModel) -> None:
        """Check that a model takes pictures.

        Raises:
            RequestError: it takes none, or not one by one.
        """
        try:
            model.session.card.image_input()
        except CardError as problem:
            raise RequestError(str(problem)) from None
        if model.session.card.carries:
            raise RequestError("this model's calls depend on each other; use Session.predict")

    async def predict(
        self, model: ServedModel, content: bytes, since_s: float, lease: Lease
    ) -> dict[str, Json]:
        """Return the prediction for an image, with the model's name and version.

        Args:
            model: One with a card whose input is an image.
            content: JPEG, PNG, BMP, WebP or TIFF.
            since_s: From when its deadline counts.

        Raises:
            RequestError: 400: it is not an image, or the model takes none; or ``Service.run`` fails.
        """
        self.check(model)
        session, before_bytes = model.session, lease.size_bytes
        try:
            async with self._decoding:
                with traced("prepare"):
                    pixels = await run_in_threadpool(picture_pixels, content, "the body")
                    lease.hold(before_bytes + DECODED_BYTES * pixels + model.run_bytes)
                    feeds, placed = await run_in_threadpool(
                        lambda: session.prepare(decode_picture(content, "the body"))
                    )
                    lease.hold(before_bytes + model.run_bytes)
        except (CardError, SampleError, UsageError) as problem:
            raise RequestError(str(problem)) from None
        arrays = await self._service.run(model, Request(feeds, {}, "", None), since_s)
        with traced("decode_outputs"):
            prediction = await run_in_threadpool(session.decode, arrays, placed)
        result: dict[str, Json] = {
            "model_name": model.name, "model_version": model.version, "prediction": prediction.as_json(),
        }  # fmt: skip
        if (feed := self._feeds.get(model.name)) is not None:
            feed.add(result)
        return result

    async def events(self, name: str, last_id: str) -> AsyncIterator[bytes]:
        """Return the predictions of a model as server-sent events (HTML, section 9.2).

        Args:
            last_id: The header ``Last-Event-ID``: where the client was before; "" for one that is new.
        """
        feed = self._feeds.setdefault(name, _Feed(self._service.memory.lease()))
        if len(feed.listeners) >= LISTENERS:
            raise RequestError(f"{LISTENERS} clients already listen to {name}; retry in 1 s", 503, 1)
        last = int(last_id) if last_id.isdecimal() and len(last_id) < 16 else None
        end_s = asyncio.get_running_loop().time() + EVENT_SECONDS

        async def stream() -> AsyncIterator[bytes]:
            waiting = feed.listen(last)  # here: a stream whose client is gone may never begin
            try:
                yield b"retry: 100\n\n"
                while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
                    try:
                        number, data = await asyncio.wait_for(waiting.get(), left_s)
                    except asyncio.TimeoutError:
                        return
                    yield f"id: {number}\ndata: {data}\n\n".encode()
            finally:
                feed.listeners.discard(waiting)

        return stream()


class _Feed:
    def __init__(self, lease: Lease) -> None:
        self._number, self._lease = 0, lease
        self._events: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self.listeners: set[asyncio.Queue[tuple[int, str]]] = set()

    def listen(self, last: int | None) -> asyncio.Queue[tuple[int, str]]:
        waiting: asyncio.Queue[tuple[int, str]] = asyncio.Queue(KEPT)
        if last is not None:
            for event in self._events:
                if event[0] > last:
                    waiting.put_nowait(event)
        self.listeners.add(waiting)
        return waiting

    def add(self, prediction: dict[str, Json]) -> None:
        self._number += 1
        event = (self._number, json.dumps(prediction))
        self._events.append(event)
        self._hold()
        for waiting in self.listeners:
            if waiting.full():  # a slow listener misses the oldest
                waiting.get_nowait()
            waiting.put_nowait(event)

    def _hold(self) -> None:
        """Hold the memory of what is kept, here and for slow listeners, or keep less."""
        while True:
            try:
                return self._lease.hold(2 * sum(len(data) for _, data in self._events))
            except RequestError:
                self._events.popleft()

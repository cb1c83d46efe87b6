"""Wyoming, the protocol of Home Assistant and its voice satellites: speech to text and wake words.

A client sends ``transcribe`` or ``detect`` and then audio in chunks. Messages come from the package
``wyoming``, which bounds neither their size nor their number nor their time; a wrapped reader and the
connection do. The protocol has neither a token nor TLS.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info, WakeModel, WakeProgram
from wyoming.ping import Ping, Pong
from wyoming.server import AsyncEventHandler
from wyoming.wake import Detect, Detection, NotDetected

from edgekit._version import __version__
from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.sound_files import WavFormat
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.openai.transcriptions import FILE_BYTES, LEAST_RATE_HZ, decoded_bytes
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_parts import PartStream, ServedSpeech
from edgekit.serve.service import Service, public_error
from edgekit.tensor_spec import Array

LINE_BYTES, PART_BYTES = 64 << 10, 1 << 20
"""Maximum size of a message's line, and of its data and its payload; a chunk of Home Assistant has 2 kB."""
EVENT_SECONDS, WRITE_SECONDS = 30.0, 10.0
"""Time for a message to come, and for a client to take one."""
CONNECTIONS = 32
"""Maximum number of connections; the next one is closed."""
AUDIO_SECONDS = 300.0
"""Maximum length of a recording that is transcribed."""
GREATEST_RATE_HZ, CHANNELS = 192_000, 8
SURE = 0.5
"""Least score of a wake word."""
BROKEN = (
    ValueError, TypeError, AttributeError, KeyError, RecursionError, EOFError, ConnectionError,
    asyncio.TimeoutError, asyncio.LimitOverrunError,
)  # fmt: skip
"""Exceptions of the package at malformed messages and lost connections, which end the connection."""


class BoundedReader:
    """A stream reader with limits on sizes and times, in place of the handler's own."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def readline(self) -> bytes:
        return await asyncio.wait_for(self._reader.readline(), EVENT_SECONDS)

    async def readexactly(self, count: int) -> bytes:
        if count > PART_BYTES:
            raise ValueError(f"a message announces {count!r} bytes; {PART_BYTES} are allowed")
        return await asyncio.wait_for(self._reader.readexactly(count), EVENT_SECONDS)

    def feed_eof(self) -> None:
        self._reader.feed_eof()


class WyomingConnection(AsyncEventHandler):  # type: ignore[misc]  # wyoming may not be installed
    """One connection: what its client asked for, and the audio since then."""

    def __init__(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(BoundedReader(reader), writer)  # what the package uses of a reader
        self._service = service
        host = (writer.get_extra_info("peername") or ("",))[0]
        self._lease = service.memory.lease(host)
        self._audio = bytearray()
        self._format: tuple[int, int] | None = None
        self._request: Transcribe | Detect | None = None
        self._heard_s = 0.0

    async def run(self) -> None:
        """Handle messages until the client closes the connection, or sends something malformed."""
        with self._lease, suppress(*BROKEN):
            await super().run()

    async def write_event(self, event: Event) -> None:
        """Send a message, unless the client does not take it in time."""
        await asyncio.wait_for(super().write_event(event), WRITE_SECONDS)

    async def handle_event(self, event: Event) -> bool:
        """Respond to a message. An error ends the connection after it was sent."""
        try:
            await self._handle(event)
        except EdgeKitError as problem:
            await self.write_event(Error(text=str(public_error(problem)), code="refused").event())
            return False
        return True

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write_event(info_of(self._service.models).event())
        elif Ping.is_type(event.type):
            await self.write_event(Pong(text=Ping.from_event(event).text).event())
        elif Transcribe.is_type(event.type) or Detect.is_type(event.type):
            kind: Any = Transcribe if Transcribe.is_type(event.type) else Detect
            self._request = kind.from_event(event)
        elif AudioStart.is_type(event.type):
            self._begin(AudioStart.from_event(event))
        elif AudioChunk.is_type(event.type):
            await self._add(AudioChunk.from_event(event).audio)
        elif AudioStop.is_type(event.type):
            await self._stop()

    # --- audio -------------------------------------------------------------------------------------------

    def _begin(self, start: AudioStart) -> None:
        rate, channels = start.rate, start.channels
        if (type(rate), type(channels), start.width) != (int, int, 2) or not (
            LEAST_RATE_HZ <= rate <= GREATEST_RATE_HZ and 1 <= channels <= CHANNELS
        ):
            raise RequestError(
                f"send audio of 16 bits, from {LEAST_RATE_HZ} Hz on, with at most {CHANNELS} channels"
            )
        self._format, self._heard_s = (rate, channels), 0.0
        self._audio.clear()

    async def _add(self, audio: bytes) -> None:
        if self._format is None:
            raise RequestError("send audio-start before audio-chunk")
        rate, channels = self._format
        seconds = (len(self._audio) + len(audio)) / (2 * channels * rate)
        if seconds > AUDIO_SECONDS or len(self._audio) + len(audio) > FILE_BYTES:
            raise RequestError(f"a recording has at most {AUDIO_SECONDS:g} s and {FILE_BYTES >> 20} MB")
        self._lease.hold(2 * (len(self._audio) + len(audio)))
        self._audio += audio
        if isinstance(self._request, Detect):
            await self._listen(self._request)

    def _samples(self, size_bytes: int) -> Array:
        assert self._format is not None
        whole = size_bytes - size_bytes % (2 * self._format[1])
        return np.frombuffer(bytes(self._audio[:whole]), "<i2").reshape(-1, self._format[1])

    async def _stop(self) -> None:
        request, self._request = self._request, None
        if self._format is None or request is None:
            raise RequestError("send transcribe or detect and audio-start before audio-stop")
        if isinstance(request, Detect):
            await self.write_event(NotDetected().event())
        else:
            text, language = await self._transcribe(request)
            await self.write_event(Transcript(text=text, language=language).event())
        self._audio.clear()
        self._lease.hold(0)

    async def _transcribe(self, request: Transcribe) -> tuple[str, str | None]:
        assert self._format is not None
        rate, channels = self._format
        name = _name_of(self._service, request.name, ServedSpeech)
        with self._service.admitted():
            async with self._service.model(name, None) as model:
                if not isinstance(model, ServedSpeech):
                    raise RequestError(f"{name} is not a speech model")
                entry: Any = model.session.card.sources()[0]
                wav = WavFormat(1, 16, channels, rate, 0, len(self._audio) // (2 * channels))
                if not wav.frames:
                    return "", None
                self._lease.hold(2 * len(self._audio) + decoded_bytes(wav, entry.rate))
                options = {"language": request.language} if request.language in model.languages else {}
                if request.language and model.languages and not options:
                    raise RequestError(f"the model does not know the language {str(request.language)[:32]!r}")
                run = model.begin(
                    partial(_part_stream, model, self._samples(len(self._audio)), rate, options),
                    self._lease.network, self._service.memory.share, time.monotonic(),
                )  # fmt: skip
                try:
                    await run.begun()
                    while await run.piece() is not None:
                        pass
                    return run.result.text.strip(), getattr(run.result, "language", None) or request.language
                finally:
                    run.close()

    async def _listen(self, request: Detect) -> None:
        """Look for wake words in each window as soon as it is complete."""
        assert self._format is not None
        rate, channels = self._format
        name = _name_of(self._service, None, ServedModel)
        async with self._service.model(name, None) as model:
            entry = model.session.card.sources()[0]
            assert isinstance(entry, AudioInput)
            wanted = request.names or _wake_words(model)[:1]  # Home Assistant's default sends none
            window_bytes, hop_bytes = (
                2 * channels * size * rate // entry.rate for size in (entry.window, entry.hop)
            )
            window_bytes, hop_bytes = (size - size % (2 * channels) for size in (window_bytes, hop_bytes))
            while len(self._audio) >= window_bytes and self._request is not None:
                with self._service.admitted():
                    predict = partial(model.session.predict, self._samples(window_bytes), rate=rate)
                    found: Any = await run_in_threadpool(predict)
                del self._audio[:hop_bytes]
                self._heard_s += hop_bytes / (2 * channels * rate)
                best = next(iter(found), None)
                if best is not None and best.score >= SURE and best.label in wanted:
                    self._request = None
                    at_ms = round(1000 * self._heard_s)
                    await self.write_event(Detection(name=best.label, timestamp=at_ms).event())


def _part_stream(
    model: ServedSpeech, samples: Array, rate: int, options: Mapping[str, Any], deadline_ms: float
) -> PartStream:
    return PartStream(model, samples, rate, options, deadline_ms)


def _wake_words(model: Any) -> Sequence[str]:
    """Return the labels of a model that classifies windows of audio, or none."""
    if not isinstance(model, ServedModel) or not model.session.bundle.card:
        return ()
    card = model.session.card
    if card.task is None or card.task.kind != "classify" or not isinstance(card.sources()[0], AudioInput):
        return ()
    return card.task.labels


def _name_of(service: Service, name: str | None, kind: type) -> str:
    """Return the name of the requested model, or of the first one that can.

    Raises:
        RequestError: 404: none can.
    """
    names = [
        m.name for m in service.models if (isinstance(m, kind) if kind is ServedSpeech else _wake_words(m))
    ]
    chosen = names[0] if names and name in (None, "") else name
    if chosen not in names:
        what = "transcribes" if kind is ServedSpeech else "detects wake words"
        raise RequestError(f"no model {str(name or '')[:64]} of this server {what}".replace("  ", " "), 404)
    return str(chosen)


def info_of(models: Iterable[Any]) -> Info:
    """Describe the models that transcribe or detect wake words."""
    about: dict[str, Any] = {
        "attribution": Attribution(name="EdgeKit", url="https://github.com/edgekit/edgekit"),
        "installed": True, "description": None, "version": __version__,
    }  # fmt: skip
    speech = [
        AsrModel(name=model.name, languages=list(model.languages) or ["en"], **about)
        for model in models
        if isinstance(model, ServedSpeech)
    ]
    wake = [
        WakeModel(name=label, phrase=label, languages=[], **about)
        for model in models
        for label in _wake_words(model)
    ]
    return Info(
        asr=[AsrProgram(name="edgekit", models=speech, **about)] if speech else [],
        wake=[WakeProgram(name="edgekit", models=wake, **about)] if wake else [],
    )


def need_audio(models: Iterable[Any]) -> None:
    """Raise UsageError if no model transcribes or detects wake words."""
    info = info_of(models)
    if not (info.asr or info.wake):
        raise UsageError("--wyoming needs a bundle that transcribes speech or classifies audio; give one")


def wyoming_server(listener: socket.socket) -> Callable[[Service], Any]:
    """Return the context in which a server listens to Wyoming on a socket."""

    @asynccontextmanager
    async def served(service: Service) -> AsyncIterator[None]:
        tasks: set[asyncio.Task[Any]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            if len(tasks) >= CONNECTIONS:
                writer.close()
                return
            tasks.add(task)
            try:
                await WyomingConnection(service, reader, writer).run()
            except asyncio.CancelledError:  # the server ends
                pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(connected, sock=listener, limit=LINE_BYTES)
        try:
            yield
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return served

"""The paths below ``/v1`` as one ASGI app."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from edgekit.generate.device.adapter import is_adapter_name
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.openai.api_errors import ApiError, error_object, response_of
from edgekit.serve.openai.chat_requests import read_chat, read_completion, read_text2text
from edgekit.serve.openai.embeddings import embeddings, embeds_texts
from edgekit.serve.openai.multipart import FIELD_BYTES, PARTS, boundary_of, read_form
from edgekit.serve.openai.request_fields import BODY_BYTES, parsed_body, text_of
from edgekit.serve.openai.text_responses import JSON, ResponseWriter, TranscriptWriter, event, json_bytes
from edgekit.serve.openai.transcriptions import BODY_BYTES as FORM_BYTES
from edgekit.serve.openai.transcriptions import read_transcription
from edgekit.serve.request_memory import began_s, headers_of, host_of, parsed_bytes, read_body
from edgekit.serve.request_traces import current_trace
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_parts import ServedParts, ServedSpeech, ServedText2Text
from edgekit.serve.served_text import ServedText

if TYPE_CHECKING:
    from edgekit.serve.openai.chat_requests import TextRequest
    from edgekit.serve.request_memory import Lease
    from edgekit.serve.service import Service
    from edgekit.serve.text_queue import Begin, TextQueue, TextRun

PARSED_BYTES = 64 << 10
"""Bodies above this size are parsed and checked in a thread."""
CHAT, COMPLETIONS, EMBEDDINGS = "chat/completions", "completions", "embeddings"
TRANSCRIPTIONS, TRANSLATIONS = "audio/transcriptions", "audio/translations"
FIELD_COPIES = 4
"""Bytes of a form's field as a text, for each of its bytes."""
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


class OpenAiPath:
    """Handles requests below ``/v1``."""

    def __init__(self, service: Service) -> None:
        self._service, self._since = service, int(time.time())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle an ASGI request; ``scope["path_params"]["path"]`` is the path below ``/v1``."""
        with self._service.memory.lease(host_of(scope)) as lease:
            try:
                await self._handle(scope, receive, send, lease)
            except Exception as problem:
                await response_of(problem)(scope, receive, send)

    async def _handle(self, scope: Any, receive: Any, send: Any, lease: Lease) -> None:
        headers, path, method = headers_of(scope), scope["path_params"]["path"], scope["method"]
        self._service.access.check(headers)
        is_list = path == "models" or path.startswith("models/")
        if not is_list and path not in (CHAT, COMPLETIONS, EMBEDDINGS, TRANSCRIPTIONS, TRANSLATIONS):
            raise ApiError(
                f"/v1/{path[:100]} does not exist here; this server has /v1/models, /v1/{CHAT}, "
                f"/v1/{COMPLETIONS}, /v1/{EMBEDDINGS}, /v1/{TRANSCRIPTIONS} and /v1/{TRANSLATIONS}",
                status=404,
                code="unknown_url",
            )
        if method != ("GET" if is_list else "POST"):
            raise ApiError(f"{method} is not allowed for /v1/{path[:100]}", status=405)
        if is_list:
            await _send_json(send, self._list() if path == "models" else self._model(path[7:]))
            return
        boundary = boundary_of(headers) if path in (TRANSCRIPTIONS, TRANSLATIONS) else b""
        since_s, begun_s = began_s(scope), time.monotonic()
        content = await read_body(headers, receive, FORM_BYTES if boundary else BODY_BYTES, lease)
        since_s += time.monotonic() - begun_s  # the deadline counts from when all of it is there
        if boundary:
            is_translation = path == TRANSLATIONS
            await self._transcribe(content, headers, boundary, is_translation, since_s, lease, receive, send)
            return
        with self._service.admitted():
            lease.hold(len(content) + parsed_bytes(content))
            is_large = len(content) > PARSED_BYTES
            if is_large:
                body = await run_in_threadpool(parsed_body, content)
            else:
                body = parsed_body(content)
            del content
            async with self._used(text_of(body, "model"), headers) as model:
                if path == EMBEDDINGS:
                    await self._embed(model, body, lease, receive, send)
                else:
                    text_model = _text_model(model, path == CHAT)
                    read = partial(_text_request, path == CHAT, body, text_model)
                    request = await run_in_threadpool(read) if is_large else read()
                    writer = ResponseWriter(body["model"], path == CHAT, request.tools, request.usage)
                    run = self._begin(
                        text_model, _beginning(request, text_model, body["model"]), lease, since_s
                    )
                    await _respond(run, writer, request.stream, receive, send)

    # --- models ------------------------------------------------------------------------------------------

    def _list(self) -> dict[str, Any]:
        models = self._service.models.current()
        return {
            "object": "list",
            "data": [
                self._about(shown)
                for name, model in models
                if model is None or _is_served(model)
                for shown in (name, *(f"{name}:{adapter}" for adapter in _adapters(model)))
            ],
        }

    def _model(self, name: str) -> dict[str, Any]:
        model_name, version, adapter = _named(name)
        model = self._service.models.served(model_name, version)
        if not _is_served(model):
            raise _not_here(name)
        _check_adapter(model, adapter)
        return self._about(name)

    def _about(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._since, "owned_by": "edgekit"}

    @asynccontextmanager
    async def _used(
        self, name: str, headers: Mapping[bytes, bytes]
    ) -> AsyncIterator[ServedModel | ServedText]:
        try:
            model_name, version, adapter = _named(name)
            version = self._service.version_for(model_name, version, headers)
            key = await self._service.key(model_name, version)
        except RequestError as problem:
            if problem.status != 404:
                raise
            raise ApiError(str(problem), "model", 404, "model_not_found") from None
        with self._service.models.hold(key) as model:
            _check_adapter(model, adapter)
            yield model

    # --- embeddings --------------------------------------------------------------------------------------

    async def _embed(
        self,
        model: ServedModel | ServedText,
        body: Mapping[str, Any],
        lease: Lease,
        receive: Any,
        send: Any,
    ) -> None:
        if not isinstance(model, ServedModel) or not embeds_texts(model):
            raise ApiError(
                f"{model.name} does not make vectors of texts; its card must have the task embed", "model"
            )
        working = asyncio.ensure_future(embeddings(self._service, model, body, lease))
        watching = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await _send_content(send, JSON, working.result())
        finally:
            await _end(working, watching)

    # --- texts and transcripts ---------------------------------------------------------------------------

    def _begin(self, model: TextQueue, begin: Begin, lease: Lease, since_s: float) -> TextRun:
        return model.begin(begin, lease.network, self._service.memory.share, since_s)

    async def _transcribe(
        self,
        content: bytes,
        headers: Mapping[bytes, bytes],
        boundary: bytes,
        is_translation: bool,
        since_s: float,
        lease: Lease,
        receive: Any,
        send: Any,
    ) -> None:
        with self._service.admitted():
            lease.hold(len(content) + FIELD_COPIES * PARTS * FIELD_BYTES)
            form = read_form(content, boundary)
            async with self._used(next(iter(form.fields.get("model", ())), ""), headers) as model:
                if not isinstance(model, ServedSpeech):
                    raise ApiError(
                        f"{model.name} is not a speech model; its card must have the task transcribe", "model"
                    )
                request = read_transcription(form, model, is_translation)
                fields_bytes = FIELD_COPIES * (len(content) - len(request.sound))
                lease.hold(len(content) + fields_bytes + request.decoded_bytes)
                begin = partial(model.transcribe, request.sound, request.options)
                run = self._begin(model, begin, lease, since_s)
                await _respond(run, TranscriptWriter(request), request.stream, receive, send)


async def _respond(
    run: TextRun,
    writer: ResponseWriter | TranscriptWriter,
    stream: bool,
    receive: Any,
    send: Any,
) -> None:
    watching = asyncio.ensure_future(_disconnected(receive))
    watching.add_done_callback(lambda _: run.cancel())  # also at the end, where it does nothing
    try:
        await run.begun()
        if stream:
            await _stream(run, writer, send)
            return
        while await run.piece() is not None:
            pass
        run.close()  # others may take its place while the client reads
        await _send_content(send, *writer.whole(run.result))
    finally:
        run.close()
        await _end(watching)


def _text_model(model: ServedModel | ServedText, chat: bool) -> ServedText | ServedText2Text:
    if isinstance(model, ServedText2Text):
        if chat:
            raise ApiError(
                "the model writes one text from another and has no chat; use /v1/completions", "model"
            )
        return model
    if not isinstance(model, ServedText):
        raise ApiError(f"{model.name} is not a language model", "model")
    if chat and not model.session.template:
        raise ApiError("the model has no chat template; use /v1/completions", "model")
    return model


def _text_request(chat: bool, body: Mapping[str, Any], model: ServedText | ServedText2Text) -> TextRequest:
    if isinstance(model, ServedText2Text):
        return read_text2text(body, model.session)
    return (read_chat if chat else read_completion)(body, model.session)


def _beginning(request: TextRequest, model: ServedText | ServedText2Text, name: str) -> Begin:
    if isinstance(model, ServedText2Text):
        return partial(model.write, str(request.prompt), request.options)
    return partial(request.begin, model.session, _named(name)[2])


async def _stream(run: TextRun, writer: ResponseWriter | TranscriptWriter, send: Any) -> None:
    """Send a text as server-sent events. An error after the first event is an event."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
    try:
        await _send_part(send, writer.first())
        while (piece := await run.piece()) is not None:
            if run.is_unread():
                raise RequestError("the client reads too slowly; the text ends here", 503)
            await _send_part(send, writer.piece(piece))
        last = writer.last(run.result)
    except Exception as problem:
        if (trace := current_trace()) is not None:
            trace.failed(problem)
        last = event(error_object(problem)[1])
    await send({"type": "http.response.body", "body": last})


async def _send_part(send: Any, content: bytes) -> None:
    if content:
        await send({"type": "http.response.body", "body": content, "more_body": True})


async def _send_json(send: Any, value: Mapping[str, Any]) -> None:
    await _send_content(send, JSON, json_bytes(value))


async def _send_content(send: Any, kind: bytes, content: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _named(name: str) -> tuple[str, str | None, str]:
    """Return name, version and adapter of ``NAME``, ``NAME:VERSION``, ``NAME:ADAPTER`` or
    ``NAME:VERSION:ADAPTER``. A version is a number, and an adapter begins with a letter.

    >>> _named("chat"), _named("chat:3"), _named("chat:pirate"), _named("chat:3:pirate")
    (('chat', None, ''), ('chat', '3', ''), ('chat', None, 'pirate'), ('chat', '3', 'pirate'))
    """
    model, _, rest = name.partition(":")
    if is_adapter_name(rest):
        return model, None, rest
    version, _, adapter = rest.partition(":")
    return model, version if ":" in name else None, adapter


def _adapters(model: ServedModel | ServedText | None) -> tuple[str, ...]:
    return model.session.adapters if isinstance(model, ServedText) else ()


def _check_adapter(model: ServedModel | ServedText, adapter: str) -> None:
    if adapter and adapter not in _adapters(model):
        available = ", ".join(_adapters(model)) or "none"
        message = f"{model.name} has no adapter {adapter[:64]!r}; available: {available}"
        raise ApiError(message, "model", 404, "model_not_found")


def _is_served(model: ServedModel | ServedText) -> bool:
    return isinstance(model, ServedText | ServedParts) or embeds_texts(model)


def _not_here(name: str) -> ApiError:
    return ApiError(
        f"{name[:64]!r} neither generates text, nor makes vectors of texts, nor transcribes sounds",
        "model",
        404,
        "model_not_found",
    )

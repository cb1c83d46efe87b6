"""Transcripts by OpenAI's endpoint: forms, formats, refusals, and uploads that are attacks."""

from __future__ import annotations

import gc
import json
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.processing.audio_preparation import mono
from edgekit.processing.sound_files import decode_sound, sound_format
from edgekit.runtime import Session
from edgekit.serve.openai.transcriptions import FILE_BYTES, decoded_bytes
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from tests.fixtures.classifiers import classifiers
from tests.fixtures.servers import Running
from tests.fixtures.sounds import wav
from tests.fixtures.whisper_folders import speech, write_whisper

pytestmark = pytest.mark.needs_ort
PATH = "/v1/audio/transcriptions"
TOKEN = {"Authorization": "Bearer secret"}
MARK = "----mark"
Field = tuple[str, str | bytes]


def sound(seconds: float = 0.5) -> bytes:
    return wav(np.rint(speech(seconds) * 30000).astype("<i2").tobytes())


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("speech")
    found = {"net": classifiers(folder)[0]}
    for name, several in (("talk", False), ("many", True)):
        model = write_whisper(folder / f"{name}-whisper", multilingual=several)
        found[name] = folder / f"{name}.edgekit"
        edgekit.build(model, targets=["ort"], precision="fp32").save(found[name])
    return found


@pytest.fixture(scope="module")
def server(bundles: dict[str, Path]) -> Iterator[Running]:
    """A server of one transcript at once and one that waits, which one address may fill."""
    from edgekit.serve.request_memory import RequestMemory
    from edgekit.serve.service import Access

    models = ServedModels(
        {(name, "1"): (path,) for name, path in bundles.items()}, ServeOptions(queue=1, conversations=1)
    )
    found = Running(models, Access(token="secret"), memory=RequestMemory(256 << 20, 1.0))
    try:
        yield found
    finally:
        found.close()


def form(*fields: Field) -> bytes:
    """A form; a field of bytes is a file."""
    found = b""
    for name, value in fields:
        extra = '; filename="talk.wav"\r\nContent-Type: audio/wav' if isinstance(value, bytes) else ""
        head = f'--{MARK}\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'
        found += head.encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return found + f"--{MARK}--\r\n".encode()


def post(
    server: Running, *fields: Field, body: bytes | None = None, headers: Any = None, path: str = PATH
) -> tuple[int, dict[str, str], Any]:
    if body is None:
        body = form(("model", "talk"), *fields)
    kind = {"Content-Type": f"multipart/form-data; boundary={MARK}"}
    status, told, content = server.ask("POST", path, body, {**TOKEN, **kind, **(headers or {})})
    is_json = told["content-type"] == "application/json"
    return status, told, json.loads(content) if is_json else content.decode()


def memory_of(server: Running) -> Any:
    routes: Any = server.app.routes
    return next(route.app for route in routes if route.path == "/v1/{path:path}")._service.memory


def until(holds: Any, seconds: float = 20) -> bool:
    end_s = time.monotonic() + seconds
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.01)
    return bool(holds())


# --- responses -------------------------------------------------------------------------------------------


def test_every_format_has_the_text_of_a_session(server: Running, bundles: dict[str, Path]) -> None:
    with Session(bundles["talk"]) as session:
        expected = session.predict(*_decoded(sound(1.3)))
    assert len(expected.segments) > 1
    file = ("file", sound(1.3))
    assert post(server, file)[2] == {"text": expected.text, "usage": {"type": "duration", "seconds": 2}}
    assert post(server, file, ("response_format", "text"))[2] == expected.text + "\n"
    verbose = post(
        server, file, ("response_format", "verbose_json"), ("timestamp_granularities[]", "segment")
    )[2]
    assert (verbose["task"], verbose["text"]) == ("transcribe", expected.text)
    assert verbose["duration"] == pytest.approx(1.3)
    found = [(each["start"], each["end"], each["text"]) for each in verbose["segments"]]
    assert found == [(round(s.start_s, 3), round(s.end_s, 3), s.text) for s in expected.segments]
    last = verbose["segments"][-1]
    assert last["id"] == len(found) - 1
    assert 0 < last["seek"] / 100 <= last["start"]
    assert len(last["tokens"]) == len(last["text"].split())
    assert last["avg_logprob"] < 0 <= last["no_speech_prob"] < 1
    srt, vtt = (post(server, file, ("response_format", each))[2] for each in ("srt", "vtt"))
    start = f"00:00:00.{round(1000 * expected.segments[0].start_s):03} --> "
    assert srt.startswith(f"1\n{start.replace('.', ',')}")
    assert vtt.startswith(f"WEBVTT\n\n{start}")
    assert all(each.text in srt and each.text in vtt for each in expected.segments)


def _decoded(content: bytes) -> tuple[Any, Any]:
    found = decode_sound(content)
    return found.samples, "rgb"


def test_a_multilingual_model_translates(server: Running, bundles: dict[str, Path]) -> None:
    fields = (("file", sound(1.3)), ("language", "de"), ("response_format", "verbose_json"))
    with Session(bundles["many"]) as session:
        said, english = (
            session.predict(*_decoded(sound(1.3)), language="de", translate=translate).text
            for translate in (False, True)
        )
    assert said != english
    path = "/v1/audio/translations"
    status, _, response = post(server, body=form(("model", "many"), *fields), path=path)
    assert (status, response["task"], response["text"]) == (200, "translate", english)
    status, _, refused = post(server, fields[0], path=path)
    assert (status, refused["error"]["message"]) == (
        400, "talk does not translate; send the sound to /v1/audio/transcriptions",
    )  # fmt: skip


def test_a_streamed_transcript_is_the_same_text(server: Running) -> None:
    whole = post(server, ("file", sound(1.3)))[2]["text"]
    _, headers, text = post(server, ("file", sound(1.3)), ("stream", "true"))
    assert headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in text.split("\n\n")[:-1]]
    assert [event["type"] for event in events[:2]] == ["transcript.text.delta"] * 2
    assert "".join(event.get("delta", "") for event in events) == whole
    assert events[-1] == {"type": "transcript.text.done", "text": whole}


def test_the_openai_client_streams_a_transcript(server: Running) -> None:
    """Reads the stream with the package openai, which the tests do not install."""
    openai = pytest.importorskip("openai", reason="openai is not installed (pip install openai)")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0)
    request = {"model": "talk", "file": ("talk.wav", sound(1.3))}
    whole = client.audio.transcriptions.create(**request).text
    *parts, last = client.audio.transcriptions.create(**request, stream=True)
    assert {part.type for part in parts} == {"transcript.text.delta"}
    assert "".join(part.delta for part in parts) == whole
    assert (last.type, last.text) == ("transcript.text.done", whole)


def test_a_language_is_found_or_given(server: Running) -> None:
    file, verbose = ("file", sound()), ("response_format", "verbose_json")

    def language(*fields: Field) -> Any:
        return post(server, body=form(("model", "many"), file, verbose, *fields))

    assert language()[2]["language"] in ("en", "de")
    assert language(("language", "de"))[2]["language"] == "de"
    status, _, found = language(("language", "xx"))
    assert (status, found["error"]["param"]) == (400, "language")
    assert found["error"]["message"] == "language is 'xx'; the model knows en, de"


def test_models_list_and_arrays_still_run(server: Running) -> None:
    listed = json.loads(server.ask("GET", "/v1/models", headers=TOKEN)[2])["data"]
    assert [each["id"] for each in listed] == ["many", "talk"]
    about = json.loads(server.ask("GET", "/v2/models/talk", headers=TOKEN)[2])
    assert "features" in [each["name"] for each in about["inputs"]]


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ([], "file", "file must be a sound"),
        ([("file", b"")], "file", "file must be a sound"),
        ([("file", b"ID3\x03 mp3")], "file", "it is not a WAV file"),
        ([("file", sound()), ("response_format", "diarized_json")], "response_format", "must be one of json"),
        ([("file", sound()), ("language", "en")], "language", "knows one language only, so leave it out"),
        ([("file", sound()), ("prompt", "Hello")], "prompt", "prompt is not supported"),
        ([("file", sound()), ("temperature", "0.5")], "temperature", "leave it out or send 0"),
        ([("file", sound()), ("stream", "1")], "stream", "stream must be true or false"),
        ([("file", sound()), ("stream", "true"), ("response_format", "srt")], "response_format", "streamed"),
        ([("file", sound()), ("include[]", "logprobs")], "include", "include is not supported"),
        ([("file", sound()), ("magic", "1")], "magic", "unknown field 'magic'"),
        ([("file", sound()), ("timestamp_granularities[]", "segment")], None, "needs response_format"),
        ([("file", sound()), ("timestamp_granularities[]", "word")], None, "times of words are not"),
    ],
)
def test_refusals_in_the_api_s_form(
    server: Running, fields: list[Field], param: str | None, message: str
) -> None:
    status, _, found = post(server, *fields)
    assert status == 400
    assert message in found["error"]["message"]
    assert set(found["error"]) == {"message", "type", "param", "code"}
    assert found["error"]["type"] == "invalid_request_error"
    assert found["error"]["param"] == (param or "timestamp_granularities")


def test_samples_that_are_no_numbers_are_refused(server: Running) -> None:
    status, _, found = post(server, ("file", wav(np.full(800, np.nan, "<f4").tobytes(), form=3, bits=32)))
    assert status == 400
    assert found["error"]["message"].endswith("it has samples that are NaN or infinite")


def test_other_models_and_forms_are_refused(server: Running) -> None:
    status, _, found = post(server, body=form(("model", "net"), ("file", sound())))
    assert (status, found["error"]["param"]) == (400, "model")
    assert "net is not a speech model" in found["error"]["message"]
    status, _, found = post(server, body=form(("model", "nope"), ("file", sound())))
    assert (status, found["error"]["code"]) == (404, "model_not_found")
    assert post(server, body=b"{}", headers={"Content-Type": "application/json"})[0] == 415
    status, _, content = server.ask(
        "POST", "/v1/chat/completions", '{"model": "talk", "messages": []}', TOKEN
    )
    assert status == 400
    assert "not a language model" in json.loads(content)["error"]["message"]


# --- attacks ---------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_read(server: Running) -> None:
    """The refusal comes while the body is still on its way."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire:
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {FILE_BYTES}\r\n"
        wire.sendall(f"{head}Content-Type: multipart/form-data; boundary={MARK}\r\n\r\n--{MARK}".encode())
        assert b" 401 " in wire.recv(65536).partition(b"\r\n")[0]
    status, _, found = post(server, body=b"", headers={"Authorization": "Bearer wrong"})
    assert (status, found["error"]["code"]) == (401, "invalid_api_key")


def test_a_body_that_is_too_large(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_of(server), "peak_bytes", 0)
    status, _, found = post(server, ("file", bytes(FILE_BYTES + (1 << 20))))
    assert (status, found["error"]["code"]) == (413, "request_too_large")
    assert "the body is larger than" in found["error"]["message"]
    assert memory_of(server).peak_bytes < 3 * FILE_BYTES
    status, _, found = post(server, ("file", bytes(FILE_BYTES + 1)))
    assert (status, found["error"]["param"]) == (413, "file")
    assert "more than 25 MB" in found["error"]["message"]


def test_a_small_file_that_claims_hours_is_refused_before_it_is_decoded(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.serve.served_parts.decode_sound", lambda content: pytest.fail("decoded"))
    status, _, found = post(server, ("file", wav(bytes(40_000), bits=8, rate=1)))  # 11 hours
    assert status == 400
    assert "has 1 samples a second; at least 4000 are needed" in found["error"]["message"]
    status, _, found = post(server, ("file", wav(bytes(4000 * 3601), bits=8, rate=4000)))
    assert status == 400
    assert "3601 s long; 3600 s are allowed" in found["error"]["message"]


def test_chunks_of_a_file_are_bounded(server: Running) -> None:
    chunks = b"RIFF\0\0\0\0WAVE" + (b"abcd" + struct.pack("<I", 0)) * 1000
    status, _, found = post(server, ("file", chunks + sound()[12:]))
    assert status == 400
    assert "more than 1000 chunks before its samples" in found["error"]["message"]


def test_the_decoded_sound_counts_against_the_memory_of_requests(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of(server)
    monkeypatch.setattr("edgekit.serve.served_parts.decode_sound", lambda content: pytest.fail("decoded"))
    long = wav(bytes(3500 * 4000), bits=8, rate=4000)  # 14 MB here, 448 MB as the model takes it
    status, _, found = post(server, ("file", long))
    assert status == 413
    assert "memory" in found["error"]["message"]
    monkeypatch.undo()
    monkeypatch.setattr(memory, "peak_bytes", 0)
    assert post(server, ("file", sound()))[0] == 200
    assert memory.peak_bytes > (1 << 20)  # while the form is read
    assert until(lambda: memory.held_bytes == 0)


@pytest.mark.parametrize("rate", [16000, 8000, 44100])
@pytest.mark.parametrize(
    ("form", "bits", "channels"),
    [(1, 16, 1), (1, 16, 2), (1, 8, 1), (1, 24, 3), (1, 32, 1), (3, 32, 2), (3, 64, 1)],
)
def test_decoding_takes_no_more_than_is_held(
    bundles: dict[str, Path], form: int, bits: int, channels: int, rate: int
) -> None:
    content = wav(bytes(400_000 * bits // 8 * channels), form=form, bits=bits, channels=channels, rate=rate)
    with Session(bundles["talk"]) as session:
        entry: Any = session.card.sources()[0]
    mono(np.zeros(100), entry, 8000)  # what is made once
    expected = decoded_bytes(sound_format(content), entry.rate)
    gc.collect()
    tracemalloc.start()
    try:
        found = decode_sound(content)
        samples = mono(found.samples, entry, found.rate)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert samples.nbytes < expected
    assert 0.4 * expected < peak < expected + (1 << 20)


def test_a_full_queue_a_deadline_and_a_client_that_hangs_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = server.models.served("talk", None)
    go = threading.Event()
    model._workers.submit(go.wait, 30)
    try:
        body = form(("model", "talk"), ("file", sound()))
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Type: "
        head += f"multipart/form-data; boundary={MARK}\r\nContent-Length: {len(body)}\r\n\r\n"
        wires = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(2)]
        for wire in wires:
            wire.sendall(head.encode() + body)
        assert until(lambda: len(model._runs) == 2)
        status, headers, found = post(server, ("file", sound()))
        assert (status, headers["retry-after"]) == (503, "1")
        assert "2 texts of talk run or wait" in found["error"]["message"]
        for wire in wires:
            wire.close()
        assert until(lambda: not model._runs, 5)
        monkeypatch.setattr(model, "options", replace(model.options, text_deadline_ms=200))
        assert post(server, ("file", sound()))[0] == 503
    finally:
        go.set()
    status, _, found = post(server, ("file", sound(120)))
    assert status == 413
    assert "was not finished within 0.2 s; send the sound in parts" in found["error"]["message"]


def test_a_client_that_hangs_up_ends_its_transcript_after_a_window(server: Running) -> None:
    model: Any = server.models.served("talk", None)
    body = form(("model", "talk"), ("file", sound(600)), ("stream", "true"))
    head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Type: "
    head += f"multipart/form-data; boundary={MARK}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire:
        wire.sendall(head.encode() + body)
        assert wire.recv(1000)
        assert model._runs
    assert until(lambda: not model._runs, 5)
    windows = model.metrics.counts.answers
    time.sleep(0.2)
    assert model.metrics.counts.answers == windows
    assert until(lambda: memory_of(server).held_bytes == 0)

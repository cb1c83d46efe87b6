"""Wyoming by its own client: a recording in, words out, wake words, and what strangers send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.server import _listening, _wyoming_address
from edgekit.system.listen_address import Address
from edgekit.system.memory import resident_bytes
from edgekit.tensor_spec import Array
from tests.fixtures.classifiers import classifiers
from tests.fixtures.servers import Running
from tests.fixtures.whisper_folders import speech, write_whisper

client = pytest.importorskip("wyoming.client", reason="wyoming is not installed (the extra wyoming)")
from wyoming.asr import Transcribe, Transcript  # noqa: E402
from wyoming.audio import AudioChunk, AudioStart, AudioStop  # noqa: E402
from wyoming.event import Event  # noqa: E402
from wyoming.info import Describe, Info  # noqa: E402
from wyoming.wake import Detect, Detection  # noqa: E402

from edgekit.serve import wyoming as door  # noqa: E402

pytestmark = [pytest.mark.needs_ort]
RATE = 16000


WAKE = """
<ir_version: 8, opset_import: ["": 17]>
wake (float[1, 1600] x) => (float[1, 2] p) {
    level = Abs(x)
    mean = ReduceMean<axes = [1], keepdims = 1>(level)
    four = Constant<value_float = 4.0>()
    one = Constant<value_float = 1.0>()
    loud = Mul(mean, four)
    hey = Min(loud, one)
    quiet = Sub(one, hey)
    p = Concat<axis = 1>(hey, quiet)
}
"""
CARD = {
    "title": "wake",
    "inputs": {"x": {"kind": "audio", "shape": [1, 1600], "rate": RATE, "window": 1600, "hop": 800}},
    "task": {
        "kind": "classify", "decode": "probabilities", "labels": ["hey", "quiet"], "outputs": {"scores": "p"},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wyoming")
    whisper = write_whisper(folder / "whisper", multilingual=True)
    onnx.save(onnx.parser.parse_model(WAKE), folder / "wake.onnx")
    built = {
        "talk": edgekit.build(whisper, targets=["ort"], precision="fp32"),
        "wake": edgekit.build(folder / "wake.onnx", targets=["ort"], precision="fp32", card=parse_card(CARD)),
    }
    return {name: Path(bundle.save(folder / f"{name}.edgekit")) for name, bundle in built.items()}


@pytest.fixture(scope="module")
def port(bundles: dict[str, Path]) -> Iterator[int]:
    models = ServedModels({(name, "1"): (path,) for name, path in bundles.items()}, ServeOptions())
    with _listening(Address(port=0)) as listener:
        served = Running(models, companion=door.wyoming_server(listener))
        try:
            yield listener.getsockname()[1]
        finally:
            served.close()


def exchanged(port: int, *events: Any, until: Sequence[str] = ()) -> list[Event]:
    """Send events by the package's client, and return the responses up to one of these types."""

    async def talk() -> list[Event]:
        found: list[Event] = []
        async with client.AsyncClient.from_uri(f"tcp://127.0.0.1:{port}") as opened:
            for event in events:
                await opened.write_event(event.event())
            while not found or found[-1].type not in until:
                event = await asyncio.wait_for(opened.read_event(), 60)
                if event is None:
                    break
                found.append(event)
        return found

    return asyncio.run(talk())


def audio(samples: Array, piece: int = 1024) -> list[Any]:
    """Return the events of audio: int16 [n]."""
    kind = {"rate": RATE, "width": 2, "channels": 1}
    pieces = [samples[at : at + piece].astype("<i2").tobytes() for at in range(0, len(samples), piece)]
    return [AudioStart(**kind), *(AudioChunk(audio=part, **kind) for part in pieces), AudioStop()]


def attacked(port: int, *pieces: bytes, seconds: float = 5.0) -> bytes | None:
    """Send bytes; return what came until the server closed the connection, or None if it did not."""

    async def attack() -> bytes | None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await asyncio.wait_for(reader.read(), seconds)
        except ConnectionError:
            return b""
        except asyncio.TimeoutError:
            return None
        finally:
            writer.close()

    return asyncio.run(attack())


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_words_are_those_of_predict(port: int, bundles: dict[str, Path]) -> None:
    samples = np.rint(speech(1.3) * 30000).astype(np.int16)
    with Session(bundles["talk"]) as session:
        expected = session.predict(samples, rate=RATE, language="de")
    assert len(expected.text.split()) > 3
    (answer,) = exchanged(port, Transcribe(language="de"), *audio(samples), until=["transcript"])
    assert Transcript.from_event(answer) == Transcript(text=expected.text.strip(), language="de")
    (answer,) = exchanged(port, Transcribe(language="fr"), *audio(samples))
    assert (answer.type, answer.data["text"]) == ("error", "the model does not know the language 'fr'")


def test_models_are_described(port: int) -> None:
    (answer,) = exchanged(port, Describe(), until=["info"])
    info = Info.from_event(answer)
    assert [(model.name, model.languages) for model in info.asr[0].models] == [("talk", ["en", "de"])]
    assert [model.name for model in info.wake[0].models] == ["hey", "quiet"]


def test_a_wake_word_is_detected_where_it_is_said(port: int) -> None:
    samples = np.zeros(RATE, np.int16)
    samples[8000:12000] = 20000
    for names in (["hey"], None):  # without names: the first label
        (answer,) = exchanged(port, Detect(names=names), *audio(samples)[:-1], until=["detection"])
        detection = Detection.from_event(answer)
        assert detection.name == "hey"
        assert 450 <= (detection.timestamp or 0) <= 650
    (answer,) = exchanged(port, Detect(names=["hey"]), *audio(samples[:7000]), until=["not-detected"])
    assert answer.type == "not-detected"


def test_a_payload_of_10_gb_is_refused(port: int) -> None:
    before_bytes = resident_bytes()
    start = line(type="audio-chunk", payload_length=10**10, data={"rate": RATE, "width": 2, "channels": 1})
    assert attacked(port, start, *[bytes(1 << 20)] * 100) == b""
    assert attacked(port, line(type="describe", data_length=10**10), *[b" " * (1 << 20)] * 100) == b""
    assert resident_bytes() < before_bytes + (50 << 20)


@pytest.mark.parametrize(
    "sent",
    [
        line(type="describe", payload_length=1e30), line(type="describe", payload_length="7"), b"[1]\n",
        b'{"type": "' + b"x" * (1 << 17) + b'"}\n', line(type="describe", data_length=60000) + b"[" * 60000,
        b"GET / HTTP/1.1\r\n\r\n", b'{"type": "\xff"}\n', b"{}\n",
        line(type="audio-chunk", payload_length=4) + b"abcd",
        line(type="transcribe", data=[1]), line(type="audio-start", data={"rate": 1}),
    ],
)  # fmt: skip
def test_malformed_messages_end_the_connection(
    sent: bytes, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert attacked(port, sent) == b""
    assert caplog.records == []


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([AudioStop()], "send transcribe or detect and audio-start before audio-stop"),
        ([AudioChunk(RATE, 2, 1, b"ab")], "send audio-start before audio-chunk"),
        ([AudioStart(RATE, 4, 1)], "send audio of 16 bits"),
        ([Transcribe(name="wake"), *audio(np.zeros(100))], "no model wake of this server transcribes"),
        ([Transcribe(), *audio(np.zeros(RATE * 301), 1 << 19)], "a recording has at most 300 s"),
    ],
)
def test_wrong_use_is_explained(events: list[Any], said: str, port: int) -> None:
    (answer,) = exchanged(port, *events)
    assert answer.type == "error"
    assert said in answer.data["text"]


def test_silent_and_surplus_connections_end(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "CONNECTIONS", 2)
    monkeypatch.setattr(door, "EVENT_SECONDS", 0.5)
    assert attacked(port, b'{"type": "des') == b""

    async def surplus() -> tuple[bytes, bool]:
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        try:
            return await asyncio.wait_for(links[2][0].read(), 0.3), links[0][0].at_eof()
        finally:
            for _, writer in links:
                writer.close()

    assert asyncio.run(surplus()) == (b"", False)


def test_a_server_needs_a_model_for_audio(bundles: dict[str, Path], tmp_path: Path) -> None:
    net = ServedModels({("net", "1"): (classifiers(tmp_path)[0],)}, ServeOptions())
    wake = ServedModels({("wake", "1"): (bundles["wake"],)}, ServeOptions())
    with closing(net), closing(wake):
        door.need_audio(wake)
        with pytest.raises(UsageError, match="--wyoming needs a bundle that transcribes speech"):
            door.need_audio(net)


def test_addresses_of_other_machines_need_a_proxy() -> None:
    assert _wyoming_address("tcp://127.0.0.1:10300", False) == Address("127.0.0.1", 10300)
    assert _wyoming_address("tcp://0.0.0.0:10300", True).host == "0.0.0.0"
    with pytest.raises(UsageError, match="neither TLS nor a token"):
        _wyoming_address("tcp://0.0.0.0:10300", False)
    with pytest.raises(UsageError, match="it must be tcp://HOST:PORT"):
        _wyoming_address("udp://box", False)

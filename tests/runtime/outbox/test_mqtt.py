"""The MQTT sink against a real broker, Debian's mosquitto; skipped where it or paho-mqtt is absent."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import MissingDependency, UsageError, install_line
from edgekit.runtime.outbox.mqtt import MqttSink
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import Parcel
from edgekit.runtime.outbox.sinks import RowRefusedError, SinkDownError
from tests.fixtures.ports import unused_port

MOSQUITTO = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
needs_paho = pytest.mark.skipif(find_spec("paho") is None, reason="paho-mqtt is not installed")
needs_broker = pytest.mark.skipif(
    find_spec("paho") is None or MOSQUITTO is None, reason="mosquitto or paho-mqtt is not installed"
)
ROW = Parcel("key-1", "metric", b"12.5", 0.0)


class Broker:
    def __init__(self, folder: Path) -> None:
        self.port = unused_port()
        self._config = folder / "mosquitto.conf"
        self._config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n", "ascii")
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        self.process = subprocess.Popen([MOSQUITTO, "-c", str(self._config)], stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end_s
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.kill()


class Subscriber:
    """A backend: what it was sent, topic, key and body."""

    def __init__(self, port: int) -> None:
        import paho.mqtt.client as paho

        self.rows: list[tuple[str, str, bytes]] = []
        self._ready = False
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe("edgekit/#", 1)
        self._client.on_subscribe = self._subscribed
        self._client.on_message = self._came
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self.wait(lambda: self._ready)

    def _subscribed(self, *_: Any) -> None:
        self._ready = True

    def _came(self, _client: Any, _data: Any, message: Any) -> None:
        key = dict(message.properties.UserProperty)["idempotency-key"]
        self.rows.append((message.topic, key, message.payload))

    def wait(self, done: Any) -> None:
        end_s = time.monotonic() + 20
        while not done():
            assert time.monotonic() < end_s
            time.sleep(0.01)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@needs_broker
def test_a_broker_gets_the_row_and_its_key(broker: Broker) -> None:
    backend, sink = Subscriber(broker.port), MqttSink("127.0.0.1", broker.port)
    sink.send(ROW)
    backend.wait(lambda: backend.rows)
    assert backend.rows == [("edgekit/metric", "key-1", b"12.5")]
    sink.close()
    backend.close()


@needs_broker
def test_a_row_that_nobody_subscribed_to_stays(tmp_path: Path, broker: Broker) -> None:
    sink = MqttSink("127.0.0.1", broker.port, topic="nobody/{kind}")
    with Outbox(tmp_path / "outbox", commit_s=0.0) as outbox:
        outbox.put(b"1")
        assert outbox.flush(20)
        delivery = outbox.deliver(sink)
        assert delivery.down == f"127.0.0.1:{broker.port} has no subscriber to nobody/result"
        assert outbox.counts()["waiting"] == 1
    sink.close()


@needs_broker
def test_a_broker_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path, broker: Broker) -> None:
    backend, sink = Subscriber(broker.port), MqttSink("127.0.0.1", broker.port, timeout_s=2.0)
    with Outbox(tmp_path / "outbox", commit_s=0.0) as outbox:
        for number in range(30):
            outbox.put(b"%d" % number, key=f"k{number}")
        assert outbox.flush(20)
        sink.send(ROW)
        broker.kill()
        assert outbox.deliver(sink).down
        assert outbox.counts()["waiting"] == 30
        broker.start()
        backend._ready = False
        backend.wait(lambda: backend._ready)
        end_s = time.monotonic() + 20
        while outbox.counts()["waiting"]:
            assert time.monotonic() < end_s
            outbox.deliver(sink)
        backend.wait(lambda: len({key for _, key, _ in backend.rows}) >= 31)
    assert {(key, body) for _, key, body in backend.rows} >= {(f"k{n}", b"%d" % n) for n in range(30)}
    sink.close()
    backend.close()


def answering(reason: int) -> int:
    """The port of a broker that confirms one row with a reason (MQTT 5, 3.2 and 3.4)."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection, connection.makefile("rb") as stream:

            def packet() -> bytes:
                return stream.read(stream.read(2)[1])  # shorter than 128 bytes, so its size is one

            packet()  # CONNECT
            connection.sendall(b"\x20\x03\x00\x00\x00")
            publish = packet()
            at = 2 + int.from_bytes(publish[:2], "big")  # after the topic
            connection.sendall(b"\x40\x03" + publish[at : at + 2] + bytes([reason]))
            stream.read()  # until it is closed

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


@needs_paho
@pytest.mark.parametrize(
    ("reason", "kind", "why"),
    [
        (0x90, RowRefusedError, "refused it: reason 0x90"),
        (0x99, RowRefusedError, "refused it: reason 0x99"),
        (0x10, SinkDownError, "has no subscriber to edgekit/metric"),
        (0x80, SinkDownError, "does not take it: reason 0x80"),
        (0x97, SinkDownError, "does not take it: reason 0x97"),
    ],
)
def test_a_row_that_a_broker_does_not_take_is_not_delivered(
    reason: int, kind: type[Exception], why: str
) -> None:
    port = answering(reason)
    sink = MqttSink("127.0.0.1", port, timeout_s=10.0)
    with pytest.raises(kind) as error:
        sink.send(ROW)
    assert str(error.value) == f"127.0.0.1:{port} {why}"
    sink.close()


@needs_paho
def test_nobody_there() -> None:
    with pytest.raises(SinkDownError, match=r"127\.0\.0\.1:1: .*Connection refused"):
        MqttSink("127.0.0.1", 1).send(ROW)


def test_a_topic_that_is_none() -> None:
    with pytest.raises(UsageError) as error:
        MqttSink("a", topic="all/#")
    assert str(error.value) == "invalid topic 'all/#': it is empty, or holds +, # or a zero byte"


def test_without_paho(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingDependency) as error:
        MqttSink("a")
    assert str(error.value) == (
        f"paho-mqtt is not installed, and an MQTT sink needs it: {install_line('mqtt')}"
    )

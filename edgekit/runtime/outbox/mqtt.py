"""An MQTT broker as the sink of an outbox. Needs paho-mqtt, the extra ``mqtt``.

    Outbox("outbox", MqttSink("10.0.0.5", topic="site/7/{kind}"))

Quality of service 1 over MQTT 5: a row counts as delivered once the broker has confirmed it and had a
subscriber for it. paho's own queue is only in memory, so the outbox remains authoritative; rows in flight
during a failure are sent again, under the same key.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError, need_package
from edgekit.runtime.outbox.rows import PRIORITIES, Parcel
from edgekit.runtime.outbox.sinks import RowRefusedError, SinkDownError

if TYPE_CHECKING:
    import ssl

KEY = "idempotency-key"
"""The user property that holds a row's key."""
NO_SUBSCRIBER = 0x10
"""MQTT 5, 3.4.2.1: the broker accepted the message, but nobody has subscribed to it."""
REFUSED = (0x90, 0x95, 0x99)
"""Topic invalid, packet too large, payload format invalid: this row is at fault."""


class MqttSink:
    """Each row a message; its key is the user property ``idempotency-key``.

    Args:
        topic: ``{kind}`` in it is replaced by the row's kind.
        timeout_s: For connecting, and for the confirmation of one row.
        context: For TLS. None means no TLS.

    Raises:
        MissingDependency: paho-mqtt is not installed.
        UsageError: ``topic`` cannot be published to.
    """

    def __init__(
        self,
        host: str,
        port: int = 1883,
        *,
        topic: str = "edgekit/{kind}",
        timeout_s: float = 10.0,
        username: str | None = None,
        password: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._topics = {kind: topic.replace("{kind}", kind) for kind in PRIORITIES}
        if not topic or set("+#\0") & set(topic):
            raise UsageError(f"invalid topic {topic!r}: it is empty, or holds +, # or a zero byte")
        with need_package("paho-mqtt", "an MQTT sink", extra="mqtt"):
            import paho.mqtt.client
        self._paho: Any = paho.mqtt.client
        self._address, self._timeout_s = (host, port), timeout_s
        self._login, self._context = (username, password), context
        self._client: Any = None
        self._codes: dict[int, Any] = {}

    def send(self, parcel: Parcel) -> None:
        """Publish one row and wait for the broker's confirmation."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        client = self._connected()
        properties: Any = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [(KEY, parcel.key)]
        message = client.publish(self._topics[parcel.kind], parcel.body, qos=1, properties=properties)
        try:
            message.wait_for_publish(self._timeout_s)
        except (RuntimeError, ValueError) as problem:  # disconnected, or its queue is full
            self.close()
            raise SinkDownError(f"{self._broker_text}: {problem}") from None
        if not message.is_published():
            self.close()  # which also discards what paho has queued
            raise SinkDownError(f"{self._broker_text} did not confirm within {self._timeout_s:g} s")
        code = self._codes.pop(message.mid, 0)
        if code in REFUSED:
            raise RowRefusedError(f"{self._broker_text} refused it: reason {code:#04x}")
        if code == NO_SUBSCRIBER:
            raise SinkDownError(f"{self._broker_text} has no subscriber to {self._topics[parcel.kind]}")
        if code >= 0x80:
            raise SinkDownError(f"{self._broker_text} does not take it: reason {code:#04x}")

    def close(self) -> None:
        """Disconnect; the next row reconnects."""
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()

    @property
    def _broker_text(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _connected(self) -> Any:
        if self._client is not None and self._client.is_connected():
            return self._client
        self.close()
        self._codes = {}
        client = self._paho.Client(self._paho.CallbackAPIVersion.VERSION2, protocol=self._paho.MQTTv5)
        if self._login[0] is not None:
            client.username_pw_set(*self._login)
        if self._context is not None:
            client.tls_set_context(self._context)
        connected, refused = threading.Event(), []

        def on_connect(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
            if reason.is_failure:
                refused.append(str(reason))
            connected.set()

        def on_publish(_client: Any, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
            self._codes[mid] = reason.value

        client.on_connect, client.on_publish = on_connect, on_publish
        client.connect_timeout = self._timeout_s
        try:
            client.connect(*self._address)
        except (OSError, ValueError) as problem:
            raise SinkDownError(f"{self._broker_text}: {problem}") from None
        client.loop_start()
        self._client = client
        if not connected.wait(self._timeout_s) or refused:
            self.close()
            raise SinkDownError(f"{self._broker_text}: {(refused or ['no response in time'])[0]}")
        return client

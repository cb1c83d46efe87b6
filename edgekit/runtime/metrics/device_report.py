"""Report of a device to its fleet: a snapshot of its metrics, its identity, and bundles its store gave up.

    report = DeviceReport("gate-7", "rpi5", channel="stable", store=store)
    with MetricsExporter(metrics, outbox, report) as exporter:      # or report.otlp, for a collector
        report.score(accepted)                                      # the app's own measure, if it has one

``edgekit release fleet`` reads the rows. All counts are cumulative, so a lost or repeated row costs its
minute only.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.runtime.metrics import otlp
from edgekit.runtime.metrics.labelled_counts import unspecific
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.runtime.store.bundle_store import Store

FORMAT = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,79}")
"""Of a device, a class of devices and a channel."""
DIGEST_CHARS = 12
"""Of a bundle's digest, as in a snapshot."""


class DeviceReport:
    """Encodes snapshots as rows of a fleet. Thread-safe.

    Args:
        device: Name of the device, its own in the fleet.
        device_class: Class of the device, e.g. ``rpi5``: devices of a class are compared with each other.
        store: The store that the session came from: bundles that it gave up are reported.

    Raises:
        UsageError: a name has other characters than letters, digits, spaces and ``._:/-``, or over 80.
    """

    def __init__(self, device: str, device_class: str, channel: str = "", store: Store | None = None) -> None:
        for field, name in (("device", device), ("device_class", device_class), ("channel", channel)):
            if NAME.fullmatch(name) is None and (name or field != "channel"):
                raise UsageError(
                    f"{field} {name!r} is not a name; up to 80 letters, digits, spaces and ._:/- are"
                )
        self._about: dict[str, Json] = {"device": device, "class": device_class, "channel": channel}
        self._store = store
        self._lock = threading.Lock()
        self._scores, self._score_sum = 0, 0.0

    def score(self, value: float) -> None:
        """Count the app's own measure of an answer, e.g. whether its user accepted it.

        Args:
            value: 0 (worst) to 1 (best).

        Raises:
            UsageError: it is another number.
        """
        if not (isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1):
            raise UsageError(f"a score is a number from 0 to 1, not {value!r}")
        with self._lock:
            self._scores += 1
            self._score_sum += value

    def __call__(self, snapshot: Mapping[str, Json]) -> bytes:
        """Return a row: the snapshot in JSON with a key ``report``."""
        return strict_json.encode({**snapshot, "report": self.as_json()})

    def otlp(self, snapshot: Mapping[str, Json]) -> bytes:
        """Return a row as the body of a POST to ``/v1/metrics`` of an OpenTelemetry collector."""
        about = {key: str(self._about[name]) for key, name in otlp.FLEET.items() if self._about[name]}
        return otlp.body({**snapshot, "report": self.as_json()}, about)

    def as_json(self) -> dict[str, Json]:
        """Return the fields that a report adds to a snapshot."""
        with self._lock:
            scores: dict[str, Json] = {"count": self._scores, "sum": self._score_sum}
        given_up = () if self._store is None else self._store.state.given_up
        return {
            "format": FORMAT,
            **self._about,
            "scores": scores,
            "given_up": [
                {"bundle": digest[:DIGEST_CHARS], "reason": unspecific(reason)} for digest, reason in given_up
            ],
        }

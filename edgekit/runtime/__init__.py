"""The device side: opens a bundle, runs its best variant that works here, and says what ran and why.

    from edgekit.runtime import Session

    with Session("detector.edgekit") as session:
        outputs = session.run({"images": images})

Standard library and numpy only; an engine is imported when a variant of it is loaded. The names below are all
that an app needs. All others than the session are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgekit.bundle.bundle import Bundle
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.session import Session
from edgekit.runtime.session_state import Active

if TYPE_CHECKING:
    from edgekit.runtime.caching.calibrate_similarity import SimilarityCalibration, calibration_from_json
    from edgekit.runtime.caching.calibrate_similarity import measure as measure_similarity
    from edgekit.runtime.caching.exact import ExactCache
    from edgekit.runtime.caching.similar import Similar
    from edgekit.runtime.gallery import Gallery
    from edgekit.runtime.latency.budget import Budget
    from edgekit.runtime.latency.system_signals import read as read_signals
    from edgekit.runtime.metrics import otlp
    from edgekit.runtime.metrics.device_report import DeviceReport
    from edgekit.runtime.metrics.exporter import MetricsExporter
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.metrics.metrics import append as append_metrics
    from edgekit.runtime.metrics.prometheus import Page as PrometheusPage
    from edgekit.runtime.outbox.mqtt import MqttSink
    from edgekit.runtime.outbox.outbox import Outbox
    from edgekit.runtime.outbox.rows import OutboxLimits
    from edgekit.runtime.outbox.sinks import FolderSink, HttpSink, Sink
    from edgekit.runtime.remote.remote_session import RemoteSession
    from edgekit.runtime.scheduling.batching import Batching
    from edgekit.runtime.scheduling.request_queue import Requests
    from edgekit.runtime.store.bundle_store import Store
    from edgekit.runtime.streaming.latest_frame import LatestFrame
    from edgekit.runtime.streaming.transcriber import Transcriber, TranscriptUpdate
    from edgekit.runtime.traces.traces import Traces

LAZY = {
    "Batching": "scheduling.batching:Batching",
    "Budget": "latency.budget:Budget",
    "DeviceReport": "metrics.device_report:DeviceReport",
    "ExactCache": "caching.exact:ExactCache",
    "FolderSink": "outbox.sinks:FolderSink",
    "Gallery": "gallery:Gallery",
    "HttpSink": "outbox.sinks:HttpSink",
    "LatestFrame": "streaming.latest_frame:LatestFrame",
    "Metrics": "metrics.metrics:Metrics",
    "MetricsExporter": "metrics.exporter:MetricsExporter",
    "MqttSink": "outbox.mqtt:MqttSink",
    "Outbox": "outbox.outbox:Outbox",
    "OutboxLimits": "outbox.rows:OutboxLimits",
    "PrometheusPage": "metrics.prometheus:Page",
    "RemoteSession": "remote.remote_session:RemoteSession",
    "Requests": "scheduling.request_queue:Requests",
    "Similar": "caching.similar:Similar",
    "SimilarityCalibration": "caching.calibrate_similarity:SimilarityCalibration",
    "Sink": "outbox.sinks:Sink",
    "Store": "store.bundle_store:Store",
    "Traces": "traces.traces:Traces",
    "Transcriber": "streaming.transcriber:Transcriber",
    "TranscriptUpdate": "streaming.transcriber:TranscriptUpdate",
    "append_metrics": "metrics.metrics:append",
    "calibration_from_json": "caching.calibrate_similarity:calibration_from_json",
    "measure_similarity": "caching.calibrate_similarity:measure",
    "otlp": "metrics.otlp:",
    "predict_parts": "streaming.listening:predict_parts",
    "read_signals": "latency.system_signals:read",
}
"""Public name -> module of this package and the name in it; without a name, the module itself."""

__all__ = [
    "Active",
    "Batching",
    "Budget",
    "Bundle",
    "DeviceReport",
    "ExactCache",
    "Fallback",
    "FolderSink",
    "Gallery",
    "HttpSink",
    "LatestFrame",
    "Metrics",
    "MetricsExporter",
    "MqttSink",
    "Outbox",
    "OutboxLimits",
    "PrometheusPage",
    "RemoteSession",
    "Requests",
    "Session",
    "Similar",
    "SimilarityCalibration",
    "Sink",
    "Store",
    "Traces",
    "Transcriber",
    "TranscriptUpdate",
    "append_metrics",
    "calibration_from_json",
    "measure_similarity",
    "otlp",
    "predict_parts",
    "read_signals",
]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        from edgekit.errors import suggestion  # here: only a wrong name needs it

        hint = suggestion(name, __all__, {"load": "Session", "open": "Session"})
        raise AttributeError(f"module 'edgekit.runtime' has no attribute {name!r}{hint}")
    module, _, inner = LAZY[name].partition(":")
    loaded = import_module(f"{__name__}.{module}")
    value = getattr(loaded, inner) if inner else loaded
    globals()[name] = value  # the next look-up comes here no more
    return value


def __dir__() -> list[str]:
    return __all__

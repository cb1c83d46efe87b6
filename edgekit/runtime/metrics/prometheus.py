"""Metrics for Prometheus: the text format, and a page on loopback that serves it.

    with Page(metrics) as page:
        print(page.url)             # http://127.0.0.1:PORT/metrics

Names and units follow Prometheus' conventions: seconds, ``_total``, ``_info``. Bucket limits are boundaries
of our buckets too, so the counts are exact. The text format has no native histograms; ``otlp.py`` has them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from edgekit.processing.latency_contract import END_TO_END
from edgekit.runtime.metrics.histogram import at_most
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.outbox.rows import DROPPED
from edgekit.system.closing import Closing
from edgekit.tensor_spec import Json

LOOPBACK = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT_COUNTS = {
    "prompt_tokens": ("prompt_tokens", "Tokens of prompts."),
    "cached_tokens": ("cached_tokens", "Tokens of prompts that had been read before."),
    "tokens": ("tokens", "Tokens written."),
    "steps": ("steps", "Steps of the decoder after the first token of a text."),
    "proposed": ("proposed_tokens", "Tokens guessed by speculative decoding."),
    "accepted": ("accepted_tokens", "Of those, tokens that the decoder itself chose."),
}
"""Field of a snapshot of texts -> its name and what it counts."""
TEXT_TIMES = {
    "first_token": ("edgekit_text_first_token_seconds", "Time from the call to the first token."),
    "token": ("edgekit_text_token_seconds", "Mean time of each further token of a text."),
}


def text(snapshot: Mapping[str, Any]) -> str:
    """Return a snapshot in the text format, version 0.0.4."""
    model = {"model": snapshot["model"], "version": snapshot["version"]}
    lines = _family("edgekit_model_info", "gauge", "What runs.")
    active = {key: snapshot[key] for key in ("variant", "engine", "device", "precision")}
    lines.append(f"edgekit_model_info{_labels({**model, **active})} 1")
    ends = [entry for entry in snapshot["stages"] if entry["stage"] == END_TO_END]
    stages = [entry for entry in snapshot["stages"] if entry["stage"] != END_TO_END]
    for name, entries, about in (
        ("edgekit_inference_duration_seconds", ends, "Time of an answer, end to end."),
        ("edgekit_stage_duration_seconds", stages, "Time of each stage of an answer."),
    ):
        if entries:
            lines += _family(name, "histogram", about)
        for entry in entries:
            labels = {**model, "engine": entry["engine"], "path": "local"}
            if entries is stages:
                labels["stage"] = entry["stage"]
            lines += _histogram(name, labels, entry)
    lines += _family("edgekit_inferences_total", "counter", "Answers by outcome.")
    for outcome, count in snapshot["outcomes"].items():
        lines.append(f"edgekit_inferences_total{_labels({**model, 'outcome': outcome})} {count}")
    lines += _family("edgekit_fallback_total", "counter", "Changes of the variant that serves.")
    for fallback in snapshot["fallbacks"]:
        labels = {**model, **{key: fallback[key] for key in ("from", "to", "reason")}}
        lines.append(f"edgekit_fallback_total{_labels(labels)} {fallback['count']}")
    if deferrals := snapshot.get("deferrals"):
        about = "Answers that a deferral left to its large variant."
        lines += _family("edgekit_deferred_total", "counter", about)
        lines.append(f"edgekit_deferred_total{_labels(model)} {deferrals['deferred']}")
    for field, count in snapshot.get("texts", {}).items():
        name, about = TEXT_COUNTS[field]
        lines += _family(f"edgekit_text_{name}_total", "counter", about)
        lines.append(f"edgekit_text_{name}_total{_labels(model)} {count}")
    return "\n".join([*lines, *_outbox(snapshot)]) + "\n"


def texts(snapshot: Mapping[str, Any]) -> str:
    """Return the metrics of texts in the text format, version 0.0.4."""
    lines: list[str] = []
    if "variant" in snapshot:
        active = {key: snapshot[key] for key in ("variant", "engine", "device", "precision")}
        lines += _family("edgekit_text_model_info", "gauge", "What writes.")
        lines.append(f"edgekit_text_model_info{_labels(active)} 1")
    if speculation := snapshot["speculation"]:
        lines += _family("edgekit_text_speculation", "gauge", "1 where guesses are made, else 0, and why.")
        labels = {"why": str(speculation["why"])}
        lines.append(f"edgekit_text_speculation{_labels(labels)} {int(speculation['on'])}")
    lines += _family("edgekit_texts_total", "counter", "Texts by the reason why they ended.")
    for reason, count in snapshot["texts"].items():
        lines.append(f"edgekit_texts_total{_labels({'reason': reason})} {count}")
    for field, (name, about) in TEXT_COUNTS.items():
        lines += _family(f"edgekit_text_{name}_total", "counter", about)
        lines.append(f"edgekit_text_{name}_total {snapshot[field]}")
    for stage, (name, about) in TEXT_TIMES.items():
        entries = [entry for entry in snapshot["stages"] if entry["stage"] == stage]
        if entries:
            lines += _family(name, "histogram", about)
        for entry in entries:
            lines += _histogram(name, {"engine": entry["engine"]}, entry)
    lines += _family("edgekit_text_fallback_total", "counter", "Changes of the variant that writes.")
    for fallback in snapshot["fallbacks"]:
        labels = {key: fallback[key] for key in ("from", "to", "reason")}
        lines.append(f"edgekit_text_fallback_total{_labels(labels)} {fallback['count']}")
    return "\n".join(lines) + "\n"


def _outbox(snapshot: Mapping[str, Any]) -> list[str]:
    rows = snapshot.get("outbox")
    if rows is None:
        return []
    lines = []
    for name, about, value in (
        ("depth", "Rows that wait for the backend.", rows["waiting"] + rows["pending"]),
        ("bytes", "Of the rows on disk.", rows["size_bytes"]),
        ("quarantined", "Rows that the backend refused too often.", rows["quarantined"]),
    ):
        lines += [*_family(f"edgekit_outbox_{name}", "gauge", about), f"edgekit_outbox_{name} {value}"]
    lines += _family("edgekit_outbox_delivered_total", "counter", "Rows that the backend has.")
    lines.append(f"edgekit_outbox_delivered_total {rows['delivered']}")
    lines += _family("edgekit_outbox_dropped_total", "counter", "Rows that were removed, by the rule.")
    for rule in DROPPED:
        count = rows[f"dropped_{rule}"]
        lines.append(f"edgekit_outbox_dropped_total{_labels({'reason': rule})} {count}")
    return lines


class Snapshots(Protocol):
    """Metrics of a ``Session`` or of a ``TextSession``."""

    def snapshot(self) -> dict[str, Json]: ...


class Page(Closing):
    """``/metrics`` on loopback, not reachable from other machines. One thread while it is open.

    Args:
        metrics: Read at each request; of a ``Session`` or of a ``TextSession``.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, metrics: Snapshots, port: int = 0) -> None:
        self._server = ThreadingHTTPServer((LOOPBACK, port), _handler(metrics))
        self._server.daemon_threads = True
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="edgekit-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving. Closing twice is fine."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: Snapshots) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0  # of a stalled client

        def do_GET(self) -> None:
            # DNS rebinding: a web page whose host name resolves to this machine sends that name here.
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in (LOOPBACK, "localhost") or self.path != "/metrics":
                self.send_error(404)
                return
            written = text if isinstance(metrics, Metrics) else texts
            content = written(metrics.snapshot()).encode("utf-8")
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Log nothing: standard error belongs to the app."""

    return Handler


def _family(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _histogram(name: str, labels: Mapping[str, str], entry: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name}_bucket{_labels({**labels, 'le': format(limit, '.9g')})} {count}"
        for limit, count in at_most(entry)
    ]
    lines.append(f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {entry['count']}")
    lines.append(f"{name}_sum{_labels(labels)} {entry['sum']:.9g}")
    lines.append(f"{name}_count{_labels(labels)} {entry['count']}")
    return lines


def _labels(labels: Mapping[str, str]) -> str:
    escaped = (
        (name, value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'))
        for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"

"""Metrics for Prometheus: the text format, and a page on loopback that serves it.

    with Page(metrics) as page:
        print(page.url)             # http://127.0.0.1:PORT/metrics

Names and units follow Prometheus' conventions: seconds, ``_total``, ``_info``. Bucket limits are boundaries
of our buckets too, so the counts are exact. The text format has no native histograms; ``otlp.py`` has them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

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


class Family(NamedTuple):
    """A metric: its samples, each with labels and a number, or a histogram in JSON."""

    name: str
    kind: str
    about: str
    samples: Sequence[tuple[Mapping[str, str], Any]]


def families(snapshot: Mapping[str, Any]) -> list[Family]:
    """Return the metrics of a ``Session``'s snapshot."""
    model = {"model": snapshot["model"], "version": snapshot["version"]}
    active = {key: snapshot[key] for key in ("variant", "engine", "device", "precision")}
    ends, stages = list[Any](), list[Any]()
    for entry in snapshot["stages"]:
        labels = {**model, "engine": entry["engine"], "path": "local"}
        if entry["stage"] == END_TO_END:
            ends.append((labels, entry))
        else:
            stages.append(({**labels, "stage": entry["stage"]}, entry))
    outcomes = [({**model, "outcome": outcome}, count) for outcome, count in snapshot["outcomes"].items()]
    changed = [({**model, **labels}, count) for labels, count in _fallbacks(snapshot)]
    metrics = [
        Family("edgekit_model_info", "gauge", "What runs.", [({**model, **active}, 1)]),
        Family("edgekit_inference_duration_seconds", "histogram", "Time of an answer, end to end.", ends),
        Family("edgekit_stage_duration_seconds", "histogram", "Time of each stage of an answer.", stages),
        Family("edgekit_inferences_total", "counter", "Answers by outcome.", outcomes),
        Family("edgekit_fallback_total", "counter", "Changes of the variant that serves.", changed),
    ]
    if deferrals := snapshot.get("deferrals"):
        about = "Answers that a deferral left to its large variant."
        metrics.append(Family("edgekit_deferred_total", "counter", about, [(model, deferrals["deferred"])]))
    for field, count in snapshot.get("texts", {}).items():
        name, about = TEXT_COUNTS[field]
        metrics.append(Family(f"edgekit_text_{name}_total", "counter", about, [(model, count)]))
    return [
        *(metric for metric in metrics if metric.samples or metric.kind != "histogram"),
        *_outbox(snapshot),
    ]


def text_families(snapshot: Mapping[str, Any]) -> list[Family]:
    """Return the metrics of a ``TextSession``'s snapshot."""
    metrics: list[Family] = []
    if "variant" in snapshot:
        active = {key: snapshot[key] for key in ("variant", "engine", "device", "precision")}
        metrics.append(Family("edgekit_text_model_info", "gauge", "What writes.", [(active, 1)]))
    if speculation := snapshot["speculation"]:
        about = "1 where guesses are made, else 0, and why."
        sample = ({"why": str(speculation["why"])}, int(speculation["on"]))
        metrics.append(Family("edgekit_text_speculation", "gauge", about, [sample]))
    ends = [({"reason": reason}, count) for reason, count in snapshot["texts"].items()]
    metrics.append(Family("edgekit_texts_total", "counter", "Texts by the reason why they ended.", ends))
    for field, (name, about) in TEXT_COUNTS.items():
        metrics.append(Family(f"edgekit_text_{name}_total", "counter", about, [({}, snapshot[field])]))
    for stage, (name, about) in TEXT_TIMES.items():
        entries = [({"engine": e["engine"]}, e) for e in snapshot["stages"] if e["stage"] == stage]
        if entries:
            metrics.append(Family(name, "histogram", about, entries))
    about = "Changes of the variant that writes."
    return [*metrics, Family("edgekit_text_fallback_total", "counter", about, _fallbacks(snapshot))]


def _fallbacks(snapshot: Mapping[str, Any]) -> list[tuple[Mapping[str, str], Any]]:
    return [
        ({key: fallback[key] for key in ("from", "to", "reason")}, fallback["count"])
        for fallback in snapshot["fallbacks"]
    ]


def _outbox(snapshot: Mapping[str, Any]) -> list[Family]:
    rows = snapshot.get("outbox")
    if rows is None:
        return []
    gauges = (
        ("depth", "Rows that wait for the backend.", rows["waiting"] + rows["pending"]),
        ("bytes", "Of the rows on disk.", rows["size_bytes"]),
        ("quarantined", "Rows that the backend refused too often.", rows["quarantined"]),
    )
    dropped = [({"reason": rule}, rows[f"dropped_{rule}"]) for rule in DROPPED]
    return [
        *(Family(f"edgekit_outbox_{name}", "gauge", about, [({}, value)]) for name, about, value in gauges),
        Family(
            "edgekit_outbox_delivered_total",
            "counter",
            "Rows that the backend has.",
            [({}, rows["delivered"])],
        ),
        Family("edgekit_outbox_dropped_total", "counter", "Rows that were removed, by the rule.", dropped),
    ]


def text(metrics: Iterable[Family]) -> str:
    """Return metrics in the text format, version 0.0.4."""
    lines: list[str] = []
    for name, kind, about, samples in metrics:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            lines += (
                _histogram(name, labels, value)
                if kind == "histogram"
                else [f"{name}{_labels(labels)} {value}"]
            )
    return "\n".join(lines) + "\n"


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
            families_of = families if isinstance(metrics, Metrics) else text_families
            content = text(families_of(metrics.snapshot())).encode("utf-8")
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Log nothing: standard error belongs to the app."""

    return Handler


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
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}" if labels else ""

"""Device side of a product that runs for years: all rooms of the runtime, wired in main's ten lines.

python device.py measure detector.edgekit yesterday.mp4 --home /var/lib/gate     # may answers be used again?
python device.py run detector.edgekit rtsp://camera/stream --home /var/lib/gate --collector http://10.0.0.5:4318
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2

from edgekit.errors import UsageError
from edgekit.formats import strict_json
from edgekit.runtime import Session
from edgekit.runtime.bundle_store import Store
from edgekit.runtime.caching.calibrate_similarity import calibration_from_json, measure
from edgekit.runtime.caching.similar import Similar
from edgekit.runtime.latency import system_signals
from edgekit.runtime.latency.budget import Budget
from edgekit.runtime.metrics import otlp
from edgekit.runtime.metrics.exporter import MetricsExporter
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.metrics.prometheus import Page
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.sinks import FolderSink, HttpSink, Sink

GOOD = 100
"""Answers after which a bundle is taken for good."""
EVERY = 25
"""Of the answers one goes to the backend."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer every frame of the source."""
    given = parsed(arguments)
    home, kept = given.home, given.home / "permit.json"
    if given.verb == "measure":
        with Session(given.bundle) as session:
            permit = measure(session, frames(given.source), order="bgr", bound=given.bound)
        home.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(permit.as_json())
        print(permit)
        return
    # The ten lines: the last good bundle, its contract, what looks the same, what is told, and to whom.
    store = Store(home / "models", factory=given.bundle)
    sink = backend(given.backend, home)
    with store.open(warm=True) as session, Outbox(home / "results", sink) as results:
        metrics = Metrics(session, results)
        with (
            Budget(session, metrics=metrics, signals=system_signals.read, on_alert=print) as budget,
            Outbox(home / "metrics", collector(given.collector, home)) as telling,
            MetricsExporter(metrics, telling, otlp.body),
            Page(metrics, given.port),
        ):
            answers = reusing(budget, kept, metrics)
            for number, frame in enumerate(frames(given.source)):
                answer = answers.predict(frame, "bgr")
                if number == GOOD:
                    store.confirm()  # this bundle is well: the next start may rely on it
                if number % EVERY == 0:
                    results.put(strict_json.encode({"frame": number, "found": answer.as_json()}))
            print(metrics.snapshot()["outcomes"], *(hop.reason for hop in budget.history), sep="\n")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("measure", "run"))
    parser.add_argument(
        "bundle", type=Path, help="the one that came with the device; with a contract in its card"
    )
    parser.add_argument("source", help="a video, a webcam's number or an RTSP address")
    parser.add_argument("--home", type=Path, required=True, help="a folder that survives")
    parser.add_argument("--backend", help="where answers go; a folder of home, when absent")
    parser.add_argument("--collector", help="of OpenTelemetry; a folder of home, when absent")
    parser.add_argument("--port", type=int, default=0, help="of the page for Prometheus, on loopback")
    parser.add_argument(
        "--bound", type=float, default=0.05, help="of answers used again so many may be wrong"
    )
    return parser.parse_args(arguments)


def reusing(budget: Budget, kept: Path, metrics: Metrics) -> Similar | Budget:
    """Answers used again by a permit that is granted, for this bundle; else every frame is answered."""
    try:
        return Similar(budget, calibration_from_json(kept.read_bytes()), metrics) if kept.exists() else budget
    except UsageError as refused:
        print(f"every frame is answered: {refused}")
        return budget


def frames(source: str) -> Iterator[Any]:
    """Frames uint8 [rows, columns, 3] in BGR, until the source ends."""
    capture = cv2.VideoCapture(int(source) if source.isdecimal() else source)
    if not capture.isOpened():
        raise SystemExit(f"error: {source} can't be opened as a video, a webcam or a stream")
    try:
        while (read := capture.read())[0]:
            yield read[1]
    finally:
        capture.release()


def backend(url: str | None, home: Path) -> Sink:
    return FolderSink(home / "told", ".json") if url is None else HttpSink(url, content_type=otlp.JSON)


def collector(url: str | None, home: Path) -> Sink:
    if url is None:
        return FolderSink(home / "told", ".json")
    return HttpSink(f"{url}/v1/metrics", content_type=otlp.JSON)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        if type(error).__module__ != "edgekit.errors":
            raise
        sys.exit(f"error: {error}")

"""Device side of a product that runs for years: all parts of the runtime, wired in ten lines of main.

python device.py measure detector.edgekit yesterday.mp4 --home /var/lib/gate    # calibrate the cache
python device.py run detector.edgekit rtsp://camera/stream --home /var/lib/gate --collector http://10.0.0.5:4318
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2

from edgekit.errors import UsageError
from edgekit.runtime import (
    Budget,
    FolderSink,
    HttpSink,
    Metrics,
    MetricsExporter,
    Outbox,
    PrometheusPage,
    Session,
    Similar,
    Sink,
    Store,
    calibration_from_json,
    measure_similarity,
    otlp,
    read_signals,
)
from edgekit.system.formats import strict_json

GOOD = 100
"""Predictions after which a bundle is confirmed."""
EVERY = 25
"""One of so many predictions is sent to the backend."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the model on every frame of the source."""
    given = parsed(arguments)
    home, kept = given.home, given.home / "calibration.json"
    if given.verb == "measure":
        with Session(given.bundle) as session:
            calibration = measure_similarity(session, frames(given.source), order="bgr", bound=given.bound)
        home.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(calibration.as_json())
        print(calibration)
        return
    # The ten lines: the last good bundle, its latency budget, similar frames, results and metrics.
    store = Store(home / "models", factory=given.bundle)
    sink = backend(given.backend, home)
    with store.open(warm=True) as session, Outbox(home / "results", sink) as results:
        metrics = Metrics(session, results)
        with (
            Budget(session, metrics=metrics, signals=read_signals, on_alert=print) as budget,
            Outbox(home / "metrics", collector(given.collector, home)) as telemetry,
            MetricsExporter(metrics, telemetry, otlp.body),
            PrometheusPage(metrics, given.port),
        ):
            predictor = reusing(budget, kept, metrics)
            for number, frame in enumerate(frames(given.source)):
                answer = predictor.predict(frame, "bgr")
                if number == GOOD:
                    store.confirm()  # this bundle works: the store may roll back to it
                if number % EVERY == 0:
                    results.put(strict_json.encode({"frame": number, "found": answer.as_json()}))
            print(metrics.snapshot()["outcomes"], *(hop.reason for hop in budget.history), sep="\n")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("measure", "run"))
    parser.add_argument("bundle", type=Path, help="the factory bundle; its card needs a [latency]")
    parser.add_argument("source", help="a video, a webcam's number or an RTSP address")
    parser.add_argument("--home", type=Path, required=True, help="a folder on persistent storage")
    parser.add_argument("--backend", help="URL for results; default: a folder in home")
    parser.add_argument("--collector", help="URL of an OpenTelemetry collector; default: a folder in home")
    parser.add_argument("--port", type=int, default=0, help="port of the Prometheus page, on loopback")
    parser.add_argument(
        "--bound", type=float, default=0.05, help="largest accepted share of false cache hits"
    )
    return parser.parse_args(arguments)


def reusing(budget: Budget, kept: Path, metrics: Metrics) -> Similar | Budget:
    """The cache of similar frames, if it is calibrated for this bundle; otherwise every frame is run."""
    try:
        return Similar(budget, calibration_from_json(kept.read_bytes()), metrics) if kept.exists() else budget
    except UsageError as refused:
        print(f"every frame is run: {refused}")
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
    return FolderSink(home / "sent", ".json") if url is None else HttpSink(url, content_type=otlp.JSON)


def collector(url: str | None, home: Path) -> Sink:
    if url is None:
        return FolderSink(home / "sent", ".json")
    return HttpSink(f"{url}/v1/metrics", content_type=otlp.JSON)


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        sys.exit(1)
    except Exception as error:
        if type(error).__module__ != "edgekit.errors":
            raise
        sys.exit(f"error: {error}")

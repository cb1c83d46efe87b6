"""Metrics in Prometheus' protobuf format, and the p99 that a real Prometheus reads from them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.serve.grpc_messages import message_classes
from edgekit.serve.prometheus_protobuf import CONTENT_TYPE, FIELDS
from tests.fixtures.proxies import free_port
from tests.fixtures.servers import Running, running

pytestmark = pytest.mark.needs_ort
ACCEPT = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""What Prometheus 2.42 sends with native histograms."""


def recorded(server: Running) -> list[float]:
    """Record 5,000 durations of a model, whose median is 12 ms; returns them."""
    seconds = 0.012 * np.random.default_rng(3).lognormal(0, 0.4, 5000)
    for value in seconds.tolist():
        server.models.find("net", None).metrics.took({"infer": value})
    return sorted(seconds.tolist())


def families(content: bytes) -> dict[str, Any]:
    """Read delimited messages."""
    kind, found, place = message_classes("m.proto", "io.prometheus.client", FIELDS)["MetricFamily"], {}, 0
    while place < len(content):
        length = shift = 0
        while True:
            byte, place = content[place], place + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        family = kind.FromString(content[place : place + length])
        found[family.name] = family
        place += length
    return found


def test_the_protobuf_format_has_the_metrics_of_the_text_format(bundle: Path) -> None:
    with running({("net", "2"): bundle, ("net", "12"): bundle}) as server:
        seconds = recorded(server)
        status, headers, content = server.ask("GET", "/metrics", headers={"Accept": ACCEPT})
        page = server.ask("GET", "/metrics")[2].decode()
    assert (status, headers["content-type"]) == (200, CONTENT_TYPE)
    read = families(content)
    kinds = {0: "counter", 1: "gauge", 4: "histogram"}
    assert [f"# TYPE {name} {kinds[family.type]}" for name, family in read.items()] == [
        line for line in page.splitlines() if line.startswith("# TYPE")
    ]
    assert {label.value for m in read["edgekit_model_info"].metric for label in m.label} >= {"2", "12"}
    histogram = read["edgekit_inference_duration_seconds"].metric[0].histogram
    assert (histogram.sample_count, histogram.sample_sum) == (5000, pytest.approx(sum(seconds)))
    (span,) = histogram.positive_span
    counts = np.cumsum(histogram.positive_delta)
    assert (len(counts), counts.sum()) == (span.length, 5000)
    limits = 2.0 ** ((span.offset + np.arange(-1, span.length)) / 2**histogram.schema)
    for below, limit, count in zip(limits, limits[1:], counts, strict=False):
        assert sum(below < value <= limit for value in seconds) == count
    assert f'le="{histogram.bucket[-1].upper_bound:.9g}"}} {histogram.bucket[-1].cumulative_count}' in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus (Debian: prometheus)")
@pytest.mark.parametrize(("native", "error"), [(True, 0.03), (False, 0.091)])
def test_the_p99_that_prometheus_reads(bundle: Path, tmp_path: Path, native: bool, error: float) -> None:
    name, port = "edgekit_stage_duration_seconds", free_port()
    with running({("net", "1"): bundle}) as server:
        truth = recorded(server)[4950]
        targets = [{"targets": [f"127.0.0.1:{server.port}"]}]
        job = {"job_name": "edgekit", "scrape_interval": "1s", "static_configs": targets}
        (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}), "utf-8")
        command = [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/db",
        ]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        command += ["--enable-feature=native-histograms"] if native else []
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as process,
        ):
            try:
                query = f'histogram_quantile(0.99, {name}{"" if native else "_bucket"}{{stage="infer"}})'
                p99 = _asked(port, query)
            finally:
                process.terminate()
    print(f"{'native' if native else 'classic'}: {1000 * p99:.3f} ms, truth {1000 * truth:.3f} ms")
    assert p99 == pytest.approx(truth, rel=error)


def _asked(port: int, query: str) -> float:
    """Return the value of a query, as soon as Prometheus has one."""
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    end_s = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                result = json.load(reply)["data"]["result"]
        except OSError:  # it is starting
            result = []
        if result:
            return float(result[0]["value"][1])
        assert time.monotonic() < end_s
        time.sleep(0.5)

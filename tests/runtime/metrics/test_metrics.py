"""Metrics: sums that add up, fallbacks counted, nothing of a user's in them, and how they are told."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import NoVariantError
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.text_metrics import TextMetrics
from edgekit.runtime import Session
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.metrics import otlp
from edgekit.runtime.metrics.labelled_counts import LABELS_LIMIT, FallbackCounts, unspecific
from edgekit.runtime.metrics.metrics import Metrics, append
from edgekit.runtime.metrics.prometheus import Page, families, text, text_families
from edgekit.runtime.session_state import Active
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.child_processes import run_python
from tests.fixtures.fake_engines import Engines, change, throws
from tests.fixtures.threads import in_threads, no_new_threads


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)])
    with Session(bundle) as session:
        yield session


def test_a_run_is_counted(session: Session) -> None:
    metrics = Metrics(session)
    for _ in range(3):
        np.testing.assert_array_equal(metrics.run({"x": X})["y"], 2 * X)
    told = metrics.snapshot()
    assert told["outcomes"] == {"ok": 3}
    assert told["fallbacks"] == []
    assert (told["model"], told["version"], told["engine"]) == ("m", "0" * 12, "Ort Runtime 1.0")
    assert [(entry["stage"], entry["count"]) for entry in told["stages"]] == [("infer", 3), ("end_to_end", 3)]


def test_stages_add_up_to_end_to_end(session: Session) -> None:
    metrics = Metrics(session)
    for n in range(1, 50):
        metrics.took({"prepare": 0.001 * n, "infer": 0.01, "decode_outputs": 0.0005})
    entries = {entry["stage"]: entry for entry in metrics.snapshot()["stages"]}
    whole = entries.pop("end_to_end")
    assert whole["sum"] == pytest.approx(sum(entry["sum"] for entry in entries.values()))
    assert metrics.quantile("infer", 0.95) == pytest.approx(0.01)
    assert metrics.quantile("prepare", 0.5) == pytest.approx(0.025, rel=0.0222)
    assert metrics.quantile("nothing", 0.5) == 0.0


def test_a_fallback_is_counted_once_with_its_reason(session: Session) -> None:
    metrics = Metrics(session)
    metrics.run({"x": X})
    change(session, throws)
    for _ in range(2):
        metrics.run({"x": X})
    told = metrics.snapshot()
    assert told["outcomes"] == {"ok": 1, "fallback": 2}
    reason = "RuntimeError: kernel died"
    assert told["fallbacks"] == [{"from": "onnx", "to": "lite", "reason": reason, "count": 1}]


def test_each_fallback_is_counted_once(engines: Engines) -> None:
    names = ["one", "two", "three"]
    with Session(small_bundle([variant(name, "ort", p50_ms=7.0) for name in names])) as session:
        metrics = Metrics(session)
        for _ in range(2):
            change(session, throws)
            metrics.run({"x": X})
        found = [(hop["from"], hop["to"], hop["count"]) for hop in metrics.snapshot()["fallbacks"]]
    assert found == [("one", "two", 1), ("two", "three", 1)]


def test_an_older_history_counts_nothing_twice() -> None:
    """It is that of a slower thread, or was restored because a request failed on every variant."""
    counts = FallbackCounts()
    changes = [Fallback("a", "b", reason, "") for reason in ("first", "second", "third")]
    for history in (changes[:1], changes[:2], changes[:1], (), changes[:2], changes):
        counts.count_new(tuple(history))
    assert [row["count"] for row in counts.as_json()] == [1, 1, 1]


def test_an_answer_that_failed_is_counted(session: Session, engines: Engines) -> None:
    metrics = Metrics(session)
    change(session, throws)
    engines["tflite"].behaviour["lite"] = throws
    with pytest.raises(NoVariantError):
        metrics.run({"x": X})
    assert metrics.snapshot()["outcomes"] == {"failed": 1}


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("x holds -1.5e+20 to 3, 41", "x holds # to # #"),
        ("OSError: /home/kim/model.onnx is not there", "OSError: PATH is not there"),
        (r"C:\Users\kim\m.tflite: nan", "PATH #"),
        ("read 1x3x416x416 and/or less", "read #x#x#x# and/or less"),
        ("a" * 200, "a" * 117 + "..."),
    ],
)
def test_a_reason_tells_no_number_and_no_path(reason: str, kept: str) -> None:
    assert unspecific(reason) == kept


def test_memory_is_bounded_whatever_fails(session: Session) -> None:
    metrics = Metrics(session)
    for n in range(500):
        metrics._fallbacks.count("a", "b", "kernel " + chr(97 + n % 26) + chr(97 + n // 26))
        metrics.took({f"stage {n}": 0.001})
    told = metrics.snapshot()
    assert len(told["fallbacks"]) == LABELS_LIMIT + 1
    assert sum(hop["count"] for hop in told["fallbacks"]) == 500
    assert len(told["stages"]) == LABELS_LIMIT + 1


def test_threads_lose_nothing(session: Session) -> None:
    metrics = Metrics(session)

    def count() -> None:
        for _ in range(2000):
            metrics.took({"infer": 0.001})
            metrics.answered("ok")

    in_threads(*[count] * 4)
    told = metrics.snapshot()
    assert told["outcomes"] == {"ok": 8000}
    assert [entry["count"] for entry in told["stages"]] == [8000, 8000]


# What the text format's specification allows for a line that is a sample.
SAMPLE = re.compile(
    r'^(?P<name>[a-zA-Z_:][\w:]*)\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (?P<value>\S+)$'
)


def test_the_text_for_prometheus(session: Session) -> None:
    metrics = Metrics(session)
    for seconds in (0.003, 0.02, 0.02, 100.0):
        metrics.took({"prepare": 0.001, "infer": seconds})
        metrics.answered("ok")
    for _ in range(2):
        metrics._fallbacks.count("a", "b", 'say "no"\\ \n')
    found: dict[str, float] = {}
    typed: set[str] = set()
    for line in text(families(metrics.snapshot())).splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match, line
            assert re.sub("_(bucket|sum|count)$", "", match["name"]) in typed
            found[f"{match['name']}|{match['labels']}"] = float(match["value"])
    own = 'model="m",version="000000000000"'
    infer = f'{own},engine="Ort Runtime 1.0",path="local",stage="infer"'
    stage = "edgekit_stage_duration_seconds"
    assert found[f'{stage}_bucket|{infer},le="0.00390625"'] == 1
    assert found[f'{stage}_bucket|{infer},le="0.03125"'] == 3
    assert found[f'{stage}_bucket|{infer},le="64"'] == 3
    assert found[f'{stage}_bucket|{infer},le="+Inf"'] == found[f"{stage}_count|{infer}"] == 4
    assert found[f"{stage}_sum|{infer}"] == pytest.approx(100.043)
    assert found[f'edgekit_inferences_total|{own},outcome="ok"'] == 4
    assert found[rf'edgekit_fallback_total|{own},from="a",to="b",reason="say \"no\"\\ \n"'] == 2
    whole = f'{own},engine="Ort Runtime 1.0",path="local"'
    assert found[f"edgekit_inference_duration_seconds_sum|{whole}"] == pytest.approx(100.047)


def histogram_quantile(q: float, scrape: str, selected: str) -> float:
    """Prometheus' rule for classic histograms: find the bucket of rank q x count, then a straight line in it.
    https://github.com/prometheus/prometheus/blob/main/promql/quantile.go"""
    buckets = [
        (float(match[1]), float(match[2]))
        for line in scrape.splitlines()
        if selected in line and (match := re.search(r'_bucket\{.*le="([^"]+)"\} (\S+)$', line))
    ]
    rank = q * buckets[-1][1]
    index = next(i for i, (_, count) in enumerate(buckets) if count >= rank)
    start, before = buckets[index - 1] if index else (0.0, 0.0)
    end, count = buckets[index]
    return start + (end - start) * (rank - before) / (count - before)


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
@pytest.mark.parametrize(
    "times",
    [
        np.random.default_rng(1).normal(0.0172, 0.00002, 2000),  # all in one bucket
        np.random.default_rng(2).lognormal(-4.5, 0.8, 2000),
        np.random.default_rng(3).uniform(0.00007, 0.0003, 2000),
        np.random.default_rng(4).exponential(3.0, 2000) + 0.0001,
    ],
)
def test_quantiles_of_prometheus_are_within_the_stated_error(
    session: Session, times: Array, q: float
) -> None:
    metrics = Metrics(session)
    for seconds in times.tolist():
        metrics.took({"infer": seconds})
    exact = float(np.quantile(times, q, method="inverted_cdf"))
    found = histogram_quantile(q, text(families(metrics.snapshot())), 'stage="infer"')
    assert found == pytest.approx(exact, rel=0.091)  # docs/runtime-latency.md
    assert metrics.quantile("infer", q) == pytest.approx(exact, rel=0.0222)
    (point,) = (
        point
        for metric in json.loads(otlp.body(metrics.snapshot()))["resourceMetrics"][0]["scopeMetrics"][0][
            "metrics"
        ]
        if metric["name"] == otlp.STAGE
        for point in metric["exponentialHistogram"]["dataPoints"]
    )
    assert native_quantile(q, point) == pytest.approx(exact, rel=0.045)


def native_quantile(q: float, point: dict[str, Any]) -> float:
    """Prometheus' rule for native histograms, into which it converts OTLP's: exponential in a bucket."""
    base, passed = 2.0 ** (2.0 ** -point["scale"]), float(point["zeroCount"])
    rank = q * float(point["count"])
    for index, text_count in enumerate(point["positive"]["bucketCounts"], point["positive"]["offset"]):
        count = float(text_count)
        if count and passed + count >= rank:
            return float(base ** (index + (rank - passed) / count))
        passed += count
    raise AssertionError("counts add up")


def test_the_page_is_on_loopback_and_ends(session: Session) -> None:
    metrics = Metrics(session)
    metrics.run({"x": X})
    with no_new_threads(), Page(metrics) as page:
        assert page.url.startswith("http://127.0.0.1:")
        assert page._server.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(page.url, timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert 'outcome="ok"} 1\n' in answer.read().decode("utf-8")
        elsewhere = urllib.request.Request(page.url, headers={"Host": "example.org:80"})
        for asked in (elsewhere, page.url.replace("/metrics", "/")):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(asked, timeout=60)
            assert error.value.code == 404
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.url, timeout=60)


def test_lines_of_json_are_appended_and_the_file_is_bounded(session: Session, tmp_path: Path) -> None:
    metrics, path = Metrics(session), tmp_path / "m.jsonl"
    for _ in range(3):
        metrics.run({"x": X})
        append(path, metrics.snapshot())
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["outcomes"]["ok"] for line in lines] == [1, 2, 3]
    append(path, {"new": 1}, limit_bytes=path.stat().st_size)
    assert path.read_bytes() == b'{"new":1}\n'
    assert len((tmp_path / "m.jsonl.1").read_bytes().splitlines()) == 3


def test_who_does_not_ask_imports_none_of_it() -> None:
    script = (
        "import sys, edgekit.runtime, edgekit.runtime.session\n"
        "rooms = ('callers', 'delivery', 'experiments', 'latency', 'reuse', 'servers', 'streaming')\n"
        "own = tuple(f'edgekit.runtime.{room}' for room in rooms)\n"
        "print({m for m in sys.modules if m.startswith(own)} or 'none')\n"
        "print({'concurrent.futures', 'http.client', 'sqlite3'} & set(sys.modules) or 'none')"
    )
    done = run_python(script, check=True)
    assert done.stdout.split() == ["none", "none"]


def test_texts_are_told_to_prometheus() -> None:
    metrics = TextMetrics()
    assert "edgekit_text_tokens_total 0" in text(text_families(metrics.snapshot())).splitlines()
    active = Active("int8", "ort 1", "CPU", "int8")
    ended = GeneratedText("secret", "stop", 7, 3, 5, 250.0, 450.0, 8, 2, 4)
    metrics.ended(ended, active, (), {"on": False, "why": "it costs more"})
    assert metrics.snapshot()["speculation"] == {"on": False, "why": "it costs more"}
    with Page(metrics) as page:
        lines = urllib.request.urlopen(page.url).read().decode().splitlines()
    for line in (
        'edgekit_texts_total{reason="stop"} 1',
        'edgekit_text_speculation{why="it costs more"} 0',
        "edgekit_text_prompt_tokens_total 7",
        "edgekit_text_cached_tokens_total 3",
        "edgekit_text_tokens_total 5",
        "edgekit_text_proposed_tokens_total 8",
        "edgekit_text_accepted_tokens_total 2",
        'edgekit_text_first_token_seconds_count{engine="ort 1"} 1',
        'edgekit_text_first_token_seconds_sum{engine="ort 1"} 0.25',
        'edgekit_text_token_seconds_sum{engine="ort 1"} 0.05',
        'edgekit_text_model_info{variant="int8",engine="ort 1",device="CPU",precision="int8"} 1',
    ):
        assert line in lines, line
    assert not any("secret" in line for line in lines)
    for line in lines:  # each family is announced once, before its samples
        assert line.startswith(("# HELP edgekit_text", "# TYPE edgekit_text", "edgekit_text")), line
    assert len({line for line in lines if line.startswith("# TYPE")}) == sum(
        line.startswith("# TYPE") for line in lines
    )

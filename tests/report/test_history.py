"""The page of a benchmark history."""

from __future__ import annotations

import pytest

from edgekit.errors import UsageError
from edgekit.report.history import groups_of, history_chart, history_page
from tests.report.reported import HOSTILE
from tests.report.runs import run

pytestmark = pytest.mark.needs_report


def test_times_are_compared_within_one_bundle_machine_and_threads() -> None:
    runs = [
        run(11, {"ort-fp32": 3.0}),
        run(10, {"ort-fp32": 2.0, "ort-int8": 1.0}),
        run(12, {"ort-fp32": 9.0}, cpu="Another CPU"),
        run(13, {"ort-fp32": 8.0}, threads=1),
    ]
    groups = groups_of(runs)
    assert [group.title for group in groups] == [
        "m.edgekit on A CPU, 1 thread",
        "m.edgekit on Another CPU, 2 threads",
        "m.edgekit on A CPU, 2 threads",
    ]
    assert groups[2].summary == [
        ("ort-fp32", "2", "2 ms", "3 ms", "+50.0%", "2 ms"),
        ("ort-int8", "1", "1 ms", "1 ms", "-", "1 ms"),
    ]
    assert [row[3] for row in groups[2].rows] == ["ort-fp32", "ort-int8", "ort-fp32"]


def test_36_variants_are_told_apart() -> None:
    (group,) = groups_of([run(10, {f"v{number}": 1.0 for number in range(36)})])
    encoding = history_chart(group)["layer"][2]["encoding"]
    looks = list(zip(encoding["color"]["scale"]["range"], encoding["shape"]["scale"]["range"], strict=True))
    assert len(set(looks)) == 36


def test_the_page_shows_the_runs_and_escapes_what_the_file_says() -> None:
    page = history_page(
        [run(10, {HOSTILE: 2.0}, cpu=HOSTILE), run(11, {HOSTILE: 1.0}, cpu=HOSTILE)], "h.jsonl"
    )
    assert "<p>2 runs from 2026-11-10 to 2026-11-11.</p>" in page
    assert HOSTILE not in page
    assert "-50.0%" in page
    assert 'data-chart="history-0"' in page
    assert page.count("<svg") == 2  # for a desk and for a phone
    assert len(page.encode()) < 4_000_000


def test_a_history_without_figures_is_refused() -> None:
    with pytest.raises(UsageError, match=r"h\.jsonl has no figures to draw"):
        history_page([run(10, {})], "h.jsonl")

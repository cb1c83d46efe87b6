from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.compiler.bench.limits import beyond, parse_limit, read_baseline
from edgekit.errors import UsageError

RESULT: dict[str, Any] = {"variant": "v", "cpu": "X", "threads": 2, "p50_ms": 10.0, "p95_ms": 12.0}
RESULT |= {"rss_mb": 50.0}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("p95>+10%", []),
        ("p95>+5%", ["v: p95>+5%: 12 ms, the limit is 11.55 ms"]),
        ("p50 > 9.5ms", ["v: p50 > 9.5ms: 10 ms, the limit is 9.5 ms"]),
        ("memory>60MB", []),
    ],
)
def test_limits(text: str, lines: list[str]) -> None:
    assert beyond([RESULT], [parse_limit(text)], {"v": {**RESULT, "p95_ms": 11.0}}) == lines


@pytest.mark.parametrize("text", ["", "p95", "p95>10", "p95<10ms", "speed>1ms", "p95>10MB", "p95>-5%"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-if"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("baseline", "why"),
    [
        (None, r"^--fail-if 'p95>\+5%' needs --baseline FILE, or a limit in units \(p95>20ms\)$"),
        ({}, r"^the baseline has no v; available: nothing$"),
        ({"v": {**RESULT, "cpu": "Y"}}, r"is from another machine or setting: cpu Y, here X;"),
        ({"v": {**RESULT, "threads": 1}}, r"is from another machine or setting: threads 1, here 2;"),
        ({"v": {**RESULT, "p95_ms": None}}, r"^the baseline of v has no p95$"),
    ],
)
def test_a_baseline_that_does_not_tell(baseline: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        beyond([RESULT], [parse_limit("p95>+5%")], baseline)


def test_what_this_system_does_not_tell() -> None:
    with pytest.raises(UsageError, match=r"^memory>1MB: memory cannot be measured on this system$"):
        beyond([{**RESULT, "rss_mb": None}], [parse_limit("memory>1MB")], None)


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(json.dumps({"results": [RESULT]}), "utf-8")
    assert read_baseline(path) == {"v": RESULT}
    for content in ("", "[]", '{"results": 3}', '{"results": [{}]}'):
        path.write_text(content, "utf-8")
        with pytest.raises(UsageError, match="is not a baseline"):
            read_baseline(path)
    with pytest.raises(UsageError, match=r"can't be read: No such file or directory$"):
        read_baseline(tmp_path / "no")

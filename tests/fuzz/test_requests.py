"""The short form of ``python -m tests.fuzz.requests``, and that it finds what is planted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

for module in ("grpc", "uvicorn", "websockets", "httptools", "PIL"):
    pytest.importorskip(module, reason=f"{module} is not installed (the extra serve)")
from tests.fuzz import requests  # noqa: E402

pytestmark = pytest.mark.needs_ort
CASES = 1500


def test_a_server_answers_or_refuses_1500_mutated_requests(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    assert list(requests.run(tmp_path, range(CASES), 0, counts)) == []
    for name in requests.KINDS:  # each had its turn
        assert sum(count for key, count in counts.items() if key.startswith(f"{name}: ")) > 30
    for answered in ("HTTP in JSON: 200", "HTTP in the binary form: 200", "gRPC: OK", "HTTP, any bytes: 401"):
        assert counts[answered] > 5

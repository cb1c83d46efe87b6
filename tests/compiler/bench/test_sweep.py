from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pytest

from edgekit.compiler.bench.sweep import parse_sweep, render_sweep, sweep
from edgekit.errors import EdgeKitError, UsageError
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import Engines, doubled


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines("a")
    monkeypatch.setattr("edgekit.target.registry.engine", found)
    return found


def test_streams_run_at_once(engines: Engines) -> None:
    at_once: list[int] = []
    running: set[int] = set()

    def slow(feeds: Mapping[str, Array]) -> dict[str, Array]:
        running.add(threading.get_ident())
        at_once.append(len(running))
        time.sleep(0.01)
        running.discard(threading.get_ident())
        return doubled(feeds)

    engines["a"].behaviour["a-fp32"] = slow
    found = sweep(small_bundle([variant("a-fp32", "a")]), "a-fp32", [(1, 1), (3, 2)], seconds=0.3)
    assert [(point["streams"], point["threads"]) for point in found] == [(1, 1), (3, 2)]
    assert max(at_once) == 3
    assert found[0]["p50_ms"] >= 10
    # More than one stream gives in the same time, however busy the machine is.
    assert found[1]["per_second"] * found[1]["p50_ms"] > 1000
    assert set(engines["a"].threads) == {1, 2}
    assert render_sweep(found).startswith("  variant  streams  threads each  a second")


def test_a_stream_that_fails_ends_them_all(engines: Engines) -> None:
    def broken(feeds: Mapping[str, Array]) -> dict[str, Array]:
        raise RuntimeError("no")

    engines["a"].behaviour["a-fp32"] = broken
    with pytest.raises(EdgeKitError):
        sweep(small_bundle([variant("a-fp32", "a")]), "a-fp32", [(2, 1)], seconds=0.05)


@pytest.mark.parametrize("text", ["", "2", "0x1", "1x", "ax1", "65x1", "1x1,"])
def test_what_is_no_sweep(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--sweep must be streams x threads, e\.g\. 1x1,1x2,2x1"):
        parse_sweep(text)

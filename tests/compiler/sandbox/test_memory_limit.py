"""A child that meets its limit of memory ends with one error, which says how to raise the limit."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.sandbox import watch
from edgekit.compiler.sandbox.contained import build_contained
from edgekit.compiler.sandbox.limits import BYTES_BEYOND, MEMORY_MB, SECONDS, TIMES_MODEL, ChildLimits
from edgekit.errors import CrashError
from edgekit.system.memory import UNKNOWN_BYTES
from tests.compiler.sandbox.new_children import children
from tests.compiler.sandbox.starving import STARVATIONS, Starving
from tests.fixtures import models
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.spare_networks import samples as spare_samples
from tests.fixtures.spare_networks import spare_network

pytestmark = pytest.mark.needs_ort

LARGE_VALUES = """
<ir_version: 10, opset_import: ["": 17]>
g (float[1,1,10000,1] x) => (float[1,1,10000,1] y)
<float[1,1,1,10000] row = {ROW}>
{
    [a] a = Mul(x, row)
    [b] b = Sigmoid(a)
    [c] c = Tanh(a)
    [d] d = Add(b, c)
    [y] y = ReduceMax <axes = [3]> (d)
}
""".replace("{ROW}", "{" + ", ".join(["0.5"] * 10_000) + "}")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell of memory")
def test_too_much_memory_is_one_error(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    monkeypatch.setenv(MEMORY_MB, "60")  # less than numpy and onnx take
    monkeypatch.setattr(watch, "free_memory_bytes", lambda: 5_000_000_000)
    with pytest.raises(CrashError) as caught:
        edgekit.build(model, targets=["ort"])
    what, where, remedy = str(caught.value).splitlines()
    assert what == "model.onnx: its process used more than its limit of 60 MB of memory"
    assert where.startswith("  at ")
    assert remedy.replace("it may need 60 MB; ", "") == (  # where the child said so before it was ended
        "  set EDGEKIT_MEMORY_MB=120 in the environment to double it; 5,000 MB are free here; this process "
        "is unharmed"
    )
    assert (list(temporary.iterdir()), children()) == ([], [])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell of memory")
def test_a_small_file_of_large_values_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit follows the values: four that live together, of 400 MB each, in a file of 200 bytes."""
    monkeypatch.delenv(MEMORY_MB, raising=False)
    peaks: list[int] = []
    close = watch.ChildWatch.close

    def noted(own: watch.ChildWatch) -> None:
        close(own)
        peaks.append(own.peak_bytes)

    monkeypatch.setattr(watch.ChildWatch, "close", noted)
    model = models.write(tmp_path, LARGE_VALUES)
    samples = [{"x": np.full((1, 1, 10_000, 1), 0.5, np.float32)}]
    bundle = edgekit.build(model, targets=["ort"], samples=samples)
    assert bundle.variants[0].status.startswith("verified")
    assert max(peaks) > BYTES_BEYOND + TIMES_MODEL * model.stat().st_size


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell of memory")
@pytest.mark.parametrize("what", ["language model", "network", "shrink"])
def test_every_verb_that_computes_claims_its_memory_and_time(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MEMORY_MB, raising=False)
    monkeypatch.delenv(SECONDS, raising=False)
    claimed: list[tuple[int, float]] = []
    close = watch.ChildWatch.close

    def noted(own: watch.ChildWatch) -> None:
        close(own)
        claimed.append((own.need().memory_bytes - own.limit_bytes, own.need().seconds - own.limit_s))

    monkeypatch.setattr(watch.ChildWatch, "close", noted)
    if what == "shrink":
        edgekit.shrink(spare_network(tmp_path), flops="-30%", samples=spare_samples())
    elif what == "network":
        edgekit.build(spare_network(tmp_path), targets=["ort"])
    else:
        edgekit.build(write_tiny(tmp_path / "tiny.gguf"), targets=["ort"])
    more_bytes, more_seconds = max(claimed)
    assert more_bytes > 0
    assert more_seconds >= 0 if what == "language model" else more_seconds > 0


SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize(
    ("need", "most_s", "limit_s"),
    [(b"", 60, 0.2), (b"no number", 60, 0.2), (b"1 0", 60, 0.2), (b"1 3", 60, 3), (b"1 9000", 0.4, 0.4)],
)
def test_the_time_limit_grows_to_the_need(need: bytes, most_s: float, limit_s: float, tmp_path: Path) -> None:
    """What the child reports counts up to a maximum; the error says what takes less."""
    path, ended = tmp_path / "need", threading.Event()
    path.write_bytes(need)
    process = subprocess.Popen(SLEEPING)
    limits = ChildLimits(1 << 30, 1 << 30, 0.2, most_s)

    def end() -> None:
        process.kill()
        ended.set()

    watching = watch.ChildWatch(process.pid, limits, end, 0.0, lambda: (0, "", ""), path)
    try:
        assert ended.wait(60)
    finally:
        watching.close()
        process.kill()
        process.wait()
    assert watching.overrun == f"its process took longer than its limit of {limit_s:g} s"
    less = ", or use fewer targets or samples" if limit_s > 0.2 else ""
    assert watching.advice == f"set EDGEKIT_SECONDS={2 * limit_s:g} in the environment to double it{less}"
    assert watching.spent_s > limit_s


def test_the_estimate_is_told_where_the_machine_has_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "free_memory_bytes", lambda: UNKNOWN_BYTES)
    assert watch.memory_advice(7_000_000_000, 9_100_000_000) == (
        "it may need 9,100 MB; set EDGEKIT_MEMORY_MB=14000 in the environment to double it"
    )


@pytest.mark.parametrize(
    ("free_bytes", "remedy"),
    [
        (300_000_000, "set EDGEKIT_MEMORY_MB=300 in the environment to double it; 300 MB are free here"),
        (
            299_000_000,
            "set EDGEKIT_MEMORY_MB=300 in the environment to double it, but only 299 MB are free here: use "
            "fewer targets or samples",
        ),
        (UNKNOWN_BYTES, "set EDGEKIT_MEMORY_MB=300 in the environment to double it"),
    ],
)
def test_the_remedy_knows_what_is_free(monkeypatch: pytest.MonkeyPatch, free_bytes: int, remedy: str) -> None:
    monkeypatch.setattr(watch, "free_memory_bytes", lambda: free_bytes)
    assert watch.memory_advice(150_000_000) == remedy


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory otherwise")
@pytest.mark.parametrize("how", sorted(STARVATIONS))
def test_memory_that_is_refused_is_one_error(
    how: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """However the child meets it, not even its handler has memory left; it prints nothing."""
    monkeypatch.setenv(MEMORY_MB, "900")
    monkeypatch.setattr(watch, "free_memory_bytes", lambda: 5_000_000_000)
    model = models.write(tmp_path, models.SMALL_CNN)
    request = BuildRequest(model, targets=["ort"], card=Starving("starving", how=how))
    with pytest.raises(CrashError) as caught:
        build_contained(request)
    assert re.sub("used [0-9]+ MB", "used N MB", str(caught.value)) == (
        "model.onnx: its process used N MB of memory and needed more than its limit, 900 MB\n"
        "  at opened\n"
        "  set EDGEKIT_MEMORY_MB=1800 in the environment to double it; 5,000 MB are free here; this "
        "process is unharmed"
    )
    assert capfd.readouterr() == ("", "")
    assert (list(temporary.iterdir()), children()) == ([], [])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory otherwise")
def test_a_file_that_is_too_large_is_one_error(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY_MB, "900")
    monkeypatch.setattr(watch, "free_memory_bytes", lambda: UNKNOWN_BYTES)
    model = models.write(tmp_path, models.SMALL_CNN)
    with pytest.raises(CrashError) as caught:
        build_contained(BuildRequest(model, targets=["ort"], card=Starving("starving", how="file")))
    assert re.sub("; .* free here", "", str(caught.value)) == (
        "model.onnx: its process wrote a file larger than 900 MB, its memory limit\n"
        "  at opened\n"
        "  set EDGEKIT_MEMORY_MB=1800 in the environment to double it"
    )

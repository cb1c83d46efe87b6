"""Reports of a browser: which figures are believed, and which are refused with which reason."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle
from edgekit.web.browser_report import BrowserReport, _number, read_report
from edgekit.web.report_server import BODY_BYTES, ReportError
from tests.fixtures.bundles import pack, packed_parts
from tests.native.models import colours_bundle

pytestmark = pytest.mark.needs_ort
SECONDS = 10.0
BENCH = {
    "seconds": 10.1, "runs": 900, "load_ms": 90, "first_ms": 30.5, "p50_ms": 10, "p95_ms": 12.5, "p99_ms": 20,
    "slices_ms": [9, 9, 9, 10, 10, 10, 11, 11, 12, 12],
}  # fmt: skip
Row = dict[str, Any]


def result(provider: str = "wasm") -> Row:
    golden = [{"golden": 0, "output": "scores", "snr_db": 102.2}]
    engine = "onnxruntime-web 1.30.0, WebAssembly"
    texts = {"variant": "colours", "provider": provider, "engine": engine, "problem": ""}
    return {**texts, "golden": golden, "bench": copy.deepcopy(BENCH)}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return colours_bundle()


def report_of(bundle: Bundle) -> Row:
    device = {"model": "Pixel 8", "system": "Android 15", "browser": "Chrome 140", "cores": 9}
    return {"bundle": bundle.digest, "device": device, "results": [result()]}


def read(
    bundle: Bundle, report: Any, providers: tuple[str, ...] = ("wasm",), elapsed: float = 60
) -> BrowserReport:
    body = report if isinstance(report, bytes) else json.dumps(report).encode()
    return read_report(body, bundle, ["colours"], providers, SECONDS, elapsed)


def test_a_right_report(bundle: Bundle) -> None:
    found = read(bundle, report_of(bundle))
    assert (found.device.machine, found.device.cpu) == ("browser", "Pixel 8")
    assert found.device.system == "Android 15, Chrome 140"
    (row,) = found.results
    assert row["status"] == "golden vectors 102.2 dB; +33 % after 10 s"
    assert row["outputs"] == {"scores": {"snr_db": 102.2, "limit_db": 40.0}}
    assert row["drift_percent"] == pytest.approx(100 / 3)
    assert found.render().splitlines()[-1].split()[-6:] == ["10", "ms", "12.5", "ms", "+33", "%"]


def test_equal_outputs_and_an_engine_that_was_left(bundle: Bundle) -> None:
    report = report_of(bundle)
    report["results"][0]["golden"][0]["snr_db"] = "equal"
    report["results"].append({**result("webgpu"), "bench": None, "golden": [], "problem": "SNR 3 dB"})
    good, bad = read(bundle, report, ("wasm", "webgpu")).results
    assert good["agreement"] == "equal"
    assert bad["status"] == "not used: SNR 3 dB"
    assert "p50_ms" not in bad


def put(*keys: Any) -> Callable[[Any], Callable[[Row], None]]:
    """``put("a", "b")(value)(report)`` sets ``report["a"]["b"]``."""

    def of(value: Any) -> Callable[[Row], None]:
        def change(report: Row) -> None:
            place: Any = report
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value

        return change

    return of


def bench(name: str) -> Callable[[Any], Callable[[Row], None]]:
    return put("results", 0, "bench", name)


def snr(value: Any) -> Callable[[Row], None]:
    return put("results", 0, "golden", 0, "snr_db")(value)


LIES: dict[str, tuple[Callable[[Row], Any], str]] = {
    "another bundle": (put("bundle")("0" * 64), "the report is of another bundle"),
    "another field": (put("more")(1), "a report does not have exactly the fields bundle, device, results"),
    "a field less": (lambda report: report.pop("device"), "a report does not have exactly the fields"),
    "results of another type": (put("results")({}), "results is not a list"),
    "a device of another type": (put("device")([]), "a device does not have exactly the fields"),
    "control characters": (put("device", "model")("a\x1b[2J"), "the report: 'a.*2J' contains"),
    "a line end": (put("device", "model")("a\nb"), "model: 'a.nb' is not a name"),
    "a long name": (put("device", "model")("a" * 201), "model: 'a+.* is not a name"),
    "cores": (put("device", "cores")(-1), "cores is -1; it must be 1 to 4096"),
    "an unknown variant": (put("results", 0, "variant")("other"), "'other' on 'wasm' was not asked for"),
    "an unknown engine": (put("results", 0, "provider")("npu"), "'colours' on 'npu' was not asked for"),
    "an engine of another type": (put("results", 0, "provider")([]), "'colours' on a list was not asked for"),
    "an engine that was not asked for": (
        put("results", 0, "provider")("webgpu"),
        "results does not have each",
    ),
    "nothing": (put("results")([]), "results does not have each variant with each engine once"),
    "a row twice": (put("results")([result(), result()]), "results does not have each variant with each"),
    "no figures and no problem": (put("results", 0, "bench")(None), "'colours' has neither figures nor a"),
    "no golden vector": (put("results", 0, "golden")([]), "golden does not have each output of each golden"),
    "golden of another type": (put("results", 0, "golden")("x"), "golden does not have each output of each"),
    "a vector twice": (
        put("results", 0, "golden")(result()["golden"] * 2),
        "golden does not have each output",
    ),
    "another output": (put("results", 0, "golden", 0, "output")("x"), "golden does not have each output"),
    "another vector": (put("results", 0, "golden", 0, "golden")(7), "golden does not have each output"),
    "a vector's index that is a list": (
        put("results", 0, "golden", 0, "golden")([]),
        "a golden vector or its",
    ),
    "below the limit": (snr(39.9), "output 'scores' is below its limit, but was measured"),
    "absurd dB": (snr(1e9), r"snr_db is 1e\+09; it must be -330 to 330"),
    "dB of another type": (snr(True), "snr_db is not a number"),
    "dB as text": (snr("inf"), "snr_db is not a number"),
    "a negative time": (bench("p50_ms")(-1), "p50_ms is -1; it must be 0 to"),
    "a time of zero": (bench("p50_ms")(0), "the times are not above 0 and in order"),
    "times out of order": (bench("p95_ms")(9), "the times are not above 0 and in order"),
    "a time longer than all": (bench("p99_ms")(10_200), "the times are not above 0 and in order"),
    "a shorter measurement": (bench("seconds")(9.9), "seconds is 9.9; it must be 10 to"),
    "more runs than fit": (bench("runs")(100_000), "so many runs do not fit into the time that was measured"),
    "few runs": (bench("runs")(3), "runs is 3; it must be 10 to"),
    "half a run": (bench("runs")(900.5), "runs is not a whole number"),
    "a huge number": (bench("runs")(10**31), "runs is 1e.31; it must be"),
    "slices of another length": (bench("slices_ms")([10] * 9), "slices_ms is not 10 numbers"),
    "slices of another type": (bench("slices_ms")([None] * 10), "slices_ms is not a number"),
    "a slice of zero": (bench("slices_ms")([0, *[10] * 9]), "the times are not above 0 and in order"),
    "slices without the median": (bench("slices_ms")([20] * 10), "p50_ms is not between the medians of the"),
    "a bench of another type": (put("results", 0, "bench")(7), "a bench does not have exactly the fields"),
}


@pytest.mark.parametrize("lie", LIES)
def test_figures_that_lie_are_refused(bundle: Bundle, lie: str) -> None:
    change, reason = LIES[lie]
    report = report_of(bundle)
    change(report)
    with pytest.raises(ReportError, match=f"^{reason}"):
        read(bundle, report)


def test_measurements_that_take_longer_than_the_page_was_there(bundle: Bundle) -> None:
    with pytest.raises(ReportError, match="took longer than the page was open"):
        read(bundle, report_of(bundle), elapsed=9)


def test_an_output_without_a_limit_is_not_believed(tmp_path: Path) -> None:
    manifest, data = packed_parts(colours_bundle())
    manifest["variants"][0]["evidence"] = {}
    (tmp_path / "bare.edgekit").write_bytes(pack(json.dumps(manifest).encode(), data))
    with (
        Bundle.open(tmp_path / "bare.edgekit") as bare,
        pytest.raises(ReportError, match="'scores' is below its limit"),
    ):
        read(bare, report_of(bare))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the report: character 0 is not JSON"),
        (b"[]", "a report does not have exactly the fields"),
        (b'{"a": NaN}', "the report: NaN is not JSON"),
        (b'{"a": 1e999}', "the report: '1e999' is not a number of 64 bits"),
        (b'{"a": 1, "a": 2}', "the report: key 'a' is twice in one object"),
        (b"[" * 100_000, "the report: "),
        (b"\xff", "the report: byte 0 is not UTF-8"),
        (bytes(BODY_BYTES + 1), r"the report: \d+ bytes; the limit is \d+"),
    ],
)
def test_what_is_not_json_is_refused(bundle: Bundle, body: bytes, reason: str) -> None:
    with pytest.raises(ReportError, match=f"^{reason}"):
        read(bundle, body)


def test_a_number_is_finite() -> None:
    for value in (math.nan, math.inf):  # strict JSON has none, so another check comes first
        with pytest.raises(ReportError, match="p50_ms is not a number"):
            _number(value, "p50_ms", 0, math.inf)

"""Report of a browser that ran a bundle: its form, its checks, and its rows in a bundle's evidence.

    {"bundle": digest,
     "device": {"model", "system", "browser": texts, "cores": number or null},
     "results": [{"variant", "provider", "engine", "problem": texts,
                  "golden": [{"golden": index, "output": name, "snr_db": number or "equal"}],
                  "bench": null or {"seconds", "runs", "load_ms", "first_ms", "p50_ms", "p95_ms", "p99_ms",
                                    "slices_ms": 10 medians}}]}

The figures are the device's own word. What can be checked here is checked: the form, the bundle, the golden
vectors against the bundle's limits, and the times against each other and against this machine's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.devices.inventory import Inventory, words
from edgekit.runtime.loading.golden_check import evidence_limit_db
from edgekit.system.formats import strict_json
from edgekit.system.formats.plain_text import milliseconds, table
from edgekit.tensor_spec import Json
from edgekit.web.report_server import BODY_BYTES, ReportError

ENGINES = {"wasm": "WebAssembly", "webgpu": "WebGPU"}
DB_LIMIT = 330.0
"""Largest SNR of two arrays of float64 that differ: 20 log10(2^53) is 319 dB."""
SLICES = 10
CORES_LIMIT = 4096
COLUMNS = ("variant", "engine", "golden vectors", "p50", "p95", "last tenth")
FORM: dict[str, tuple[str, ...]] = {
    "report": ("bundle", "device", "results"),
    "device": ("model", "system", "browser", "cores"),
    "result": ("variant", "provider", "engine", "problem", "golden", "bench"),
    "golden": ("golden", "output", "snr_db"),
    "bench": ("seconds", "runs", "load_ms", "first_ms", "p50_ms", "p95_ms", "p99_ms", "slices_ms"),
}


@dataclass(frozen=True)
class BrowserReport:
    """Checked report.

    Attributes:
        results: A row for each variant and engine: ``variant``, ``provider``, ``engine``, ``status``,
            ``outputs`` (name -> lowest ``snr_db``, None where equal, and ``limit_db``), and with figures
            ``threads``, ``load_ms``, ``first_ms``, ``p50_ms``, ``p95_ms``, ``p99_ms``, ``runs``, ``seconds``
            and ``drift_percent``: the last tenth's median beside the first's.
    """

    device: Inventory
    results: list[dict[str, Any]]

    def by_tool(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows by what measured them, as a bundle's evidence names it."""
        rows_by_tool: dict[str, list[dict[str, Any]]] = {}
        for row in self.results:
            tool = f"{ENGINES[row['provider']]} in a browser, reported by the device"
            rows_by_tool.setdefault(tool, []).append(row)
        return rows_by_tool

    def render(self) -> str:
        """Return the table of the command line."""
        rows = []
        for row in self.results:
            times = [milliseconds(row[name]) if name in row else "-" for name in ("p50_ms", "p95_ms")]
            drift = f"{row['drift_percent']:+.0f} %" if "drift_percent" in row else "-"
            rows.append((row["variant"], row["engine"], row["agreement"], *times, drift))
        device = self.device
        title = f"  reported by the device: {device.cpu} ({device.system}); not measured by this machine"
        return "\n".join([title, *table(COLUMNS, rows)])


def read_report(
    body: bytes,
    bundle: Bundle,
    variants: Sequence[str],
    providers: Sequence[str],
    seconds: float,
    elapsed: float,
) -> BrowserReport:
    """Check a report.

    Args:
        seconds: Requested measuring time of each variant and engine.
        elapsed: Seconds since the page could be loaded.

    Raises:
        ReportError: it is malformed, of another bundle, or its figures contradict each other.
    """
    try:
        report = _object(strict_json.decode(body, "the report", BODY_BYTES), "report")
        if report["bundle"] != bundle.digest:
            raise ReportError("the report is of another bundle")
        device = _device(_object(report["device"], "device"))
        if not isinstance(report["results"], list):
            raise ReportError("results is not a list")
        results = [_result(_object(row, "result"), bundle, seconds) for row in report["results"]]
        reported = sorted((row["variant"], row["provider"]) for row in results)
        if reported != sorted((variant, provider) for variant in variants for provider in providers):
            raise ReportError("results does not have each variant with each engine once")
        if sum(row.get("seconds", 0) for row in results) > elapsed:
            raise ReportError("the measurements took longer than the page was open")
        return BrowserReport(device, results)
    except strict_json.JsonError as problem:
        raise ReportError(str(problem)) from None


def _object(value: Json, kind: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or sorted(value) != sorted(FORM[kind]):
        raise ReportError(f"a {kind} does not have exactly the fields {', '.join(FORM[kind])}")
    return value


def _text(value: Any, name: str) -> str:
    try:
        return words(value)
    except ValueError as problem:
        raise ReportError(f"{name}: {problem}") from None


def _number(value: Any, name: str, minimum: float, maximum: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ReportError(f"{name} is not a number")
    if not minimum <= value <= maximum:
        raise ReportError(f"{name} is {value:g}; it must be {minimum:g} to {maximum:g}")
    return float(value)


def _device(device: Mapping[str, Any]) -> Inventory:
    if device["cores"] is not None:
        _number(device["cores"], "cores", 1, CORES_LIMIT)
    model, system, browser = (_text(device[name], name) for name in ("model", "system", "browser"))
    return Inventory(machine="browser", cpu=model, system=f"{system}, {browser}")


def _result(result: Mapping[str, Any], bundle: Bundle, seconds: float) -> dict[str, Any]:
    name, provider = _text(result["variant"], "variant"), result["provider"]
    engine, problem = _text(result["engine"], "engine"), _text(result["problem"], "problem")
    variant = next((one for one in bundle.variants if one.name == name), None)
    if variant is None or provider not in tuple(ENGINES):
        raise ReportError(f"{strict_json.brief(name)} on {strict_json.brief(provider)} was not asked for")
    row: dict[str, Any] = {"variant": name, "provider": provider, "engine": engine}
    if result["bench"] is None:
        if not problem:
            raise ReportError(f"{strict_json.brief(name)} has neither figures nor a problem")
        return row | {"status": f"not used: {problem}", "outputs": {}, "agreement": f"not used: {problem}"}
    outputs = _agreement(result["golden"], bundle, variant.evidence)
    lowest = min((one["snr_db"] for one in outputs.values() if one["snr_db"] is not None), default=None)
    agreement = "equal" if lowest is None else f"{lowest:.1f} dB"
    row |= {"outputs": outputs, "agreement": agreement, "threads": 1, "device": "browser"}
    row |= _times(_object(result["bench"], "bench"), seconds)
    drift = f"{row['drift_percent']:+.0f} % after {row['seconds']:.0f} s"
    return row | {"status": f"golden vectors {agreement}; {drift}"}


def _agreement(rows: Any, bundle: Bundle, evidence: Mapping[str, Json]) -> dict[str, Any]:
    """Return the lowest SNR of each output; each must reach the build's limit, as in the page."""
    limits = {spec.name: evidence_limit_db(evidence, spec.name) for spec in bundle.outputs}
    expected = {(i, name) for i in range(len(bundle.manifest["golden"])) for name in limits}
    measured: dict[tuple[Any, Any], float] = {}
    for row in rows if isinstance(rows, list) else []:
        pair = _object(row, "golden")
        key = pair["golden"], pair["output"]
        if isinstance(pair["golden"], bool) or not isinstance(key[0], int) or not isinstance(key[1], str):
            raise ReportError("a golden vector or its output is not named")
        equal = pair["snr_db"] == "equal"
        measured[key] = math.inf if equal else _number(pair["snr_db"], "snr_db", -DB_LIMIT, DB_LIMIT)
    if not isinstance(rows, list) or len(rows) != len(expected) or set(measured) != expected:
        raise ReportError("golden does not have each output of each golden vector once")
    outputs = {}
    for name, limit_db in limits.items():
        lowest = min(snr for (_, output), snr in measured.items() if output == name)
        if limit_db is None or lowest < limit_db:
            raise ReportError(f"output {strict_json.brief(name)} is below its limit, but was measured")
        outputs[name] = {"snr_db": None if lowest == math.inf else lowest, "limit_db": limit_db}
    return outputs


def _times(bench: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the times; they must be in order, and fit into the time that was measured."""
    most_ms = 1e3 * 3600.0
    measured = _number(bench["seconds"], "seconds", seconds, most_ms / 1e3)
    if isinstance(bench["runs"], float):
        raise ReportError("runs is not a whole number")
    runs = int(_number(bench["runs"], "runs", SLICES, 1e9))
    names = ("load_ms", "first_ms", "p50_ms", "p95_ms", "p99_ms")
    times = {name: _number(bench[name], name, 0, most_ms) for name in names}
    slices = bench["slices_ms"]
    if not isinstance(slices, list) or len(slices) != SLICES:
        raise ReportError(f"slices_ms is not {SLICES} numbers")
    medians = [_number(value, "slices_ms", 0, 1e3 * measured) for value in slices]
    if not 0 < times["p50_ms"] <= times["p95_ms"] <= times["p99_ms"] <= 1e3 * measured or medians[0] <= 0:
        raise ReportError("the times are not above 0 and in order")
    if runs * times["p50_ms"] * 0.45 > 1e3 * measured:  # half of the runs take p50 or longer
        raise ReportError("so many runs do not fit into the time that was measured")
    if not min(medians) <= times["p50_ms"] <= max(medians):
        raise ReportError("p50_ms is not between the medians of the slices")
    drift = 100 * (medians[-1] / medians[0] - 1)
    return {**times, "runs": runs, "seconds": measured, "drift_percent": drift}

"""Figures from a device in a bundle: their place, what they replace, and who uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.bundle.device_evidence import device_records, lines, times_of_this_processor
from edgekit.devices.measure import merge, with_results, without_devices
from edgekit.errors import DeviceError
from edgekit.runtime import Session
from edgekit.system import cpu
from tests.fixtures import models

PI: dict[str, Any] = {
    "cpu": "Raspberry Pi 5 0xd0b",
    "isa": ["asimd"],
    "machine": "aarch64",
    "system": "Linux 6.6",
    "python": "3.11.2",
}
HERE = {**PI, "cpu": cpu.identity()[0], "isa": cpu.identity()[1:], "machine": cpu.processor_kind()}


def row(variant: str, p50_ms: float, threads: int = 1) -> dict[str, Any]:
    return {
        "variant": variant, "engine": "LiteRT 2.3.0", "device": "CPU", "precision": "fp32",
        "threads": threads,
        "load_ms": 3.0, "first_ms": 2 * p50_ms, "cold_ms": 9.0, "p50_ms": p50_ms, "p95_ms": 1.5 * p50_ms,
        "p99_ms": 2 * p50_ms, "runs": 9, "cpu": "any",
    }  # fmt: skip


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A bundle with two variants, ort-fp32 and tflite-fp32."""
    model = models.write(tmp_path, models.SMALL_CNN)
    path = tmp_path / "small.edgekit"
    edgekit.build(model, targets=["ort", "tflite"]).save(path)
    return path


def manifest_of(path: Path) -> dict[str, Any]:
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        return bundle.manifest


def test_later_figures_replace_earlier_ones_of_the_same_threads() -> None:
    first = with_results(None, "bench", [row("a", 8.0), row("b", 9.0)], PI, "edgekit")
    second = with_results(first, "bench", [row("a", 7.0), row("a", 4.0, threads=4)], PI, "edgekit")
    (record,) = device_records({"extensions": {"devices": second}})
    assert [(r["p50_ms"], r["threads"]) for r in record.rows("a")] == [(7.0, 1), (4.0, 4)]
    assert [r["p50_ms"] for r in record.rows("b")] == [9.0]
    assert device_records({"extensions": {"devices": first}})[0].rows("a")[0]["p50_ms"] == 8.0


def test_devices_and_tools_are_kept_apart() -> None:
    known = with_results(None, "bench", [row("a", 8.0)], PI, "edgekit")
    known = with_results(known, "bench", [row("a", 5.0)], PI, "benchmark_model")
    known = with_results(known, "bench", [row("a", 3.0)], {**PI, "isa": ["asimd", "i8mm"]}, "edgekit")
    found = [
        (r.by, r.isa, r.rows("a")[0]["p50_ms"]) for r in device_records({"extensions": {"devices": known}})
    ]
    assert found == [
        ("edgekit", ("asimd",), 8.0),
        ("benchmark_model", ("asimd",), 5.0),
        ("edgekit", ("asimd", "i8mm"), 3.0),
    ]


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_a_bundle_is_added_to_and_nothing_else_changes(built: Path) -> None:
    before = manifest_of(built)
    merge(built, before, "bench", {"edgekit": [row("ort-fp32", 12.0)]}, PI)
    checks = [{"variant": "ort-fp32", "status": "verified on ONNX Runtime 1", "outputs": {}}]
    digest = merge(built, before, "verify", {"edgekit": checks}, PI)
    with Bundle.open(built) as bundle:
        bundle.verify_entries()
        assert bundle.digest == digest
        text = bundle.report
        assert without_devices(bundle).manifest == before
    assert "measured on Raspberry Pi 5 0xd0b (aarch64, Linux 6.6)" in text
    line = next(each for each in text.splitlines() if each.strip().startswith("ort-fp32"))
    assert line.split() == [
        "ort-fp32", "12", "ms", "18", "ms", "24", "ms", "1", "verified", "on", "ONNX", "Runtime", "1",
    ]  # fmt: skip


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.needs_report
def test_the_page_has_a_table_for_each_device(built: Path) -> None:
    from edgekit.report.page import page_of

    before = manifest_of(built)
    with Bundle.open(built) as bundle:
        assert "Measured on devices" not in page_of(bundle)
    merge(built, before, "bench", {"edgekit": [row("ort-fp32", 12.0)]}, {**PI, "cpu": "Pi <b>5</b>"})
    merge(built, before, "bench", {"benchmark_model": [row("tflite-fp32", 7.0)]}, PI)
    with Bundle.open(built) as bundle:
        page = page_of(bundle)
    assert "<h2>Measured on devices</h2>" in page
    assert "<h3>Pi &lt;b&gt;5&lt;/b&gt; (aarch64, Linux 6.6)</h3>" in page
    assert "Raspberry Pi 5 0xd0b (aarch64, Linux 6.6), by benchmark_model</h3>" in page


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_a_bundle_that_was_built_again_is_left_as_it_is(built: Path, tmp_path: Path) -> None:
    before = manifest_of(built)
    (tmp_path / "other").mkdir()
    other = models.write(tmp_path / "other", models.TWO_INPUTS)
    edgekit.build(other, targets=["ort"]).save(built)
    content = built.read_bytes()
    with pytest.raises(DeviceError, match="was built again while the device ran the old one"):
        merge(built, before, "bench", {"edgekit": [row("ort-fp32", 12.0)]}, PI)
    assert built.read_bytes() == content


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("faster", ["ort-fp32", "tflite-fp32"])
def test_a_session_ranks_by_a_device_with_its_processor(built: Path, faster: str) -> None:
    """Before the figures of the build, whichever of the two was faster there; times of another device, of
    other threads or of a vendor's tool say nothing."""
    slower = next(name for name in ("ort-fp32", "tflite-fp32") if name != faster)
    before = manifest_of(built)
    against = [row(slower, 0.001), row(faster, 99.0)]
    merge(built, before, "bench", {"edgekit": against}, PI)
    merge(built, before, "bench", {"trtexec": against}, HERE)
    merge(built, before, "bench", {"edgekit": [row(slower, 0.001, 3), row(faster, 99.0, 3)]}, HERE)
    assert times_of_this_processor(manifest_of(built), 2) == {}
    merge(built, before, "bench", {"edgekit": [row(slower, 9.0, 2), row(faster, 5.0, 2)]}, HERE)
    assert times_of_this_processor(manifest_of(built), 2) == {slower: 9.0, faster: 5.0}
    with Session(built, threads=2) as session:
        assert session.active.variant == faster
        assert np.isfinite(session.run({"image": np.ones((1, 3, 16, 16), np.float32)})["scores"]).all()


@pytest.mark.parametrize(
    "odd",
    [
        None, 1, "x", {"a": 1}, [None, 1, "x"], [{"cpu": 1}], [{**PI, "by": "edgekit", "variants": []}],
        [{**PI, "by": "edgekit", "isa": [1], "variants": {}}],
        [{**PI, "by": "edgekit", "variants": {"a": {"bench": {"p50_ms": 1}}, "b": None}}],
        [{**HERE, "by": "edgekit", "variants": {"a": {"bench": [{"p50_ms": "1"}, {"p50_ms": -1}, 3]}}}],
    ],
)  # fmt: skip
def test_what_is_not_of_the_form_is_ignored(odd: Any) -> None:
    manifest = {"extensions": {"devices": odd}}
    assert times_of_this_processor(manifest, 1) == {}
    assert lines(manifest) == []
    added = with_results(odd, "bench", [row("a", 8.0)], HERE, "edgekit")
    assert times_of_this_processor({"extensions": {"devices": added}}, 1) == {"a": 8.0}


def test_names_in_figures_are_printable() -> None:
    known = with_results(None, "bench", [row("a\x1b[2J", 8.0)], {**PI, "cpu": "Pi\x1b[2J"}, "edgekit")
    assert "\x1b" not in "\n".join(lines({"extensions": {"devices": known}}))

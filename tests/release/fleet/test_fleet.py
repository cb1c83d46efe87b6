"""Rows of devices as they are written, read and judged."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import UsageError, printable
from edgekit.release.fleet.devices import fleets
from edgekit.release.fleet.rollout import MeasureResult, Verdict, judged, measures
from edgekit.release.fleet.rows import DeviceRow, RowError, Unused, decoded, read_rows
from edgekit.release.fleet.table import lines_of
from edgekit.runtime import DeviceReport, Outbox, Session
from edgekit.runtime.metrics.exporter import MetricsExporter
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.outbox.sinks import FolderSink
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.fixtures.fake_engines import Engines, change, throws
from tests.release.fleet.simulated_fleet import BEGAN, NEW, OLD, rollout, snapshot_of


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    with Session(small_bundle([variant("onnx", "ort"), variant("lite", "tflite", p50_ms=9.0)])) as session:
        yield session


def row(
    bundle: str = OLD, device: str = "d", since: float = 0.0, until: float = 9.0, bad: int = 0
) -> DeviceRow:
    content = DeviceReport(device, "rpi5", "stable")(snapshot_of(bundle, since, until, 300, bad))
    return decoded(content)


@pytest.mark.parametrize("otlp", [False, True])
def test_a_row_says_what_the_device_counted(session: Session, engines: Engines, otlp: bool) -> None:
    metrics, report = Metrics(session), DeviceReport("gate-7", "rpi5", "stable")
    for score in (1.0, 0.5):
        metrics.run({"x": X})
        report.score(score)
    change(session, throws)
    metrics.run({"x": X})
    snapshot = metrics.snapshot()
    found = decoded((report.otlp if otlp else report)(snapshot))
    assert (found.device, found.device_class, found.channel) == ("gate-7", "rpi5", "stable")
    assert (found.answers, found.fallback, found.failed) == (3, 1, 0)
    assert found.bundle == session.bundle.digest[:12] == snapshot["bundle"]
    assert (found.variant, found.engine) == (session.active.variant, session.active.engine)
    assert found.scores == (2, 1.5)
    assert found.times[0] == 3 == sum(found.buckets[1])
    assert found.since == pytest.approx(snapshot["since"], abs=1e-4)


@pytest.mark.parametrize("otlp", [False, True])
def test_bundles_that_were_given_up_are_told_without_paths(
    session: Session, tmp_path: Path, otlp: bool
) -> None:
    store = Store(tmp_path / "store", None)
    store.give_up("OSError: /home/kim/m.onnx: 3 values", "c" * 64)
    report = DeviceReport("gate-7", "rpi5", store=store)
    snapshot = Metrics(session).snapshot()
    found = decoded((report.otlp if otlp else report)(snapshot))
    assert found.given_up == {"c" * 12: "OSError: PATH # values"}


def test_rows_travel_through_an_outbox_to_a_folder(session: Session, tmp_path: Path) -> None:
    metrics, outbox = Metrics(session), Outbox(tmp_path / "outbox", FolderSink(tmp_path / "rows", ".json"))
    with MetricsExporter(metrics, outbox, DeviceReport("gate-7", "rpi5", "stable")):
        metrics.run({"x": X})
    assert outbox.flush(30)
    outbox.deliver(FolderSink(tmp_path / "rows", ".json"))
    outbox.close()
    unused = Unused()
    (found,) = read_rows([tmp_path / "rows"], unused, time.time())
    assert (found.answers, unused.count) == (1, 0)


def test_counts_of_processes_add_up_however_often_rows_come() -> None:
    rows = [row(until=2.0, bad=1), row(until=5.0, bad=4), row(since=6.0, until=7.0, bad=2)]
    fleet = fleets([rows[1], rows[0], rows[2], rows[1], rows[0]])["detector"]
    (line,) = lines_of(fleet)
    assert (line.devices, line.amounts.answers, line.amounts.failed) == (1, 600, 6)
    assert line.p50_ms == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"until": -1.0}, "a number in it is invalid or below 0"),
        ({"since": BEGAN + 10.0}, "it was sent before its counts began"),
        ({"outcomes": {"ok": 1.5}}, "a count in it is not a whole number"),
        ({"outcomes": []}, "it is not a device's row"),
        ({"model": "x" * 300}, "is not text, or too long"),
        ({"report": {"format": 2}}, "its format is 2; the supported one is 1"),
        (
            {"report": {"format": 1, "device": "../x", "class": "c", "channel": ""}},
            "not a device's row|no name",
        ),
        ({"stages": [{"stage": "end_to_end"}]}, "it is not a device's row: KeyError"),
    ],
)
def test_a_wrong_row_is_passed_over_with_its_reason(
    change: dict[str, object], why: str, tmp_path: Path
) -> None:
    good = DeviceReport("d", "rpi5")(snapshot_of(OLD, 0.0, 9.0, 300, 0))
    wrong = json.dumps({**json.loads(good), **change}).encode()
    with pytest.raises(RowError, match=why):
        decoded(wrong)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([b"{", wrong, good, b"\xff", b""]))
    unused = Unused()
    assert len(list(read_rows([path], unused, time.time()))) == 1
    assert unused.count == 3
    assert unused.first.startswith(f"{path}:1: ")


def reported(**changes: Any) -> bytes:
    """A row whose ``report``, ``scores`` or first stage has other values."""
    row = json.loads(DeviceReport("d", "rpi5", "stable")(snapshot_of(OLD, 0.0, 9.0, 300, 0)))
    for key, value in changes.items():
        (row["stages"][0] if key in row["stages"][0] else row["report"])[key] = value
    return json.dumps(row).encode()


@pytest.mark.parametrize("what", ["device", "class", "channel"])
@pytest.mark.parametrize("name", ["../x", "x" * 81, "<b>", " x"])
def test_a_row_of_a_device_whose_name_is_none_is_no_row(what: str, name: str) -> None:
    """Names are file names, cells and keys of a backend's tables."""
    with pytest.raises(RowError) as error:
        decoded(reported(**{what: name}))
    assert str(error.value) == f"its {what} {printable(name)[:80]!r} is not a name"


@pytest.mark.parametrize("total", [300.0001, 1e308])
def test_scores_are_at_most_1(total: float) -> None:
    assert decoded(reported(scores={"count": 300, "sum": 300.0})).scores == (300, 300.0)
    with pytest.raises(RowError, match=r"^its scores are over 1$"):
        decoded(reported(scores={"count": 300, "sum": total}))


def test_buckets_are_those_of_edgekit() -> None:
    """One row of 2,000 buckets, or of buckets far away, would make every sum of the fleet as long."""
    good = {"offset": -1000, "bucket_counts": [1] * 1000}
    assert decoded(reported(**good)).buckets == (-1000, (1,) * 1000)
    for wrong in (
        {"scale": 5},
        {"offset": 1001},
        {"offset": -1001},
        {"offset": 0.5},
        {"offset": True},
        {"bucket_counts": [0] * 1001},
    ):
        with pytest.raises(RowError, match=r"^its buckets are not EdgeKit's$"):
            decoded(reported(**{**good, **wrong}))
    for count in (-1, 1 << 53, 0.5, True):
        with pytest.raises(RowError, match="a count in it is not a whole number from 0"):
            decoded(reported(bucket_counts=[count]))


def test_a_row_has_at_most_a_megabyte() -> None:
    with pytest.raises(ValueError, match="1048577 bytes; the limit is 1048576"):
        decoded(reported().ljust((1 << 20) + 1))


def test_a_time_of_400_digits_is_no_time() -> None:
    good = DeviceReport("d", "rpi5").otlp(snapshot_of(OLD, 0.0, 9.0, 300, 0))
    wrong = re.sub(rb'"startTimeUnixNano": ?"\d+"', b'"startTimeUnixNano": "' + b"9" * 400 + b'"', good)
    assert wrong != good
    with pytest.raises(RowError, match="not a device's row: OverflowError"):
        decoded(wrong)


def test_a_device_is_where_its_last_row_says_in_whatever_order_they_come() -> None:
    last, first = replace(row(until=9.0), channel="beta"), row(until=2.0)
    for rows in ([first, last], [last, first]):
        (device,) = fleets(rows)["detector"].devices.values()
        assert (device.newest.channel, device.newest.until) == ("beta", BEGAN + 9.0)


def test_a_row_whose_counts_fall_is_not_counted() -> None:
    first, last = row(until=2.0), row(until=9.0)
    wrong = replace(first, until=BEGAN + 5.0, answers=900, times=(100, 50.0))  # fewer times than before
    (device,) = fleets([first, wrong, last])["detector"].devices.values()
    spans = [(each.start - BEGAN, each.end - BEGAN) for each in device.intervals(OLD)]
    assert spans == [(0.0, 2.0), (2.0, 9.0)]


@pytest.mark.parametrize("name", ["", "../x", "a" * 81, "tab\t", "ü"])
def test_names_of_devices(name: str) -> None:
    with pytest.raises(UsageError, match="is not a name"):
        DeviceReport(name, "rpi5")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "1"])
def test_scores(value: float) -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        DeviceReport("d", "rpi5").score(value)


# --- rollouts; `python -m tests.release.fleet.simulated_fleet` is the long form -----------------------------


@pytest.mark.parametrize(("otlp", "liars"), [(False, False), (True, False), (False, True)])
def test_a_worse_bundle_is_stopped_in_the_first_stages(otlp: bool, liars: bool) -> None:
    ended = rollout(1500, 0.03, seed=1, stages=(0.08, 0.2, 1.0), otlp=otlp, liars=liars)
    assert ended.verdict.decision == "stop"
    assert ended.share == 0.08
    (worse,) = (each for each in ended.verdict.findings if each.decision == "stop")
    assert worse.measure.name == "bad answers"
    assert worse.low < 0.03 < worse.high


@pytest.mark.parametrize("liars", [False, True])
def test_an_equal_bundle_reaches_all_devices(liars: bool) -> None:
    ended = rollout(1500, 0.0, seed=1, stages=(0.2, 1.0), liars=liars)
    assert (ended.verdict.decision, ended.share) == ("promote", 1.0)


def test_a_stage_that_can_tell_no_more_needs_devices() -> None:
    """Devices count once: 110 of them may leave the difference unknown for ever."""
    finding = MeasureResult(measures()[0], (5000, 110), 0.004, -0.002, 0.0101)
    verdict = Verdict(OLD, NEW, 120, 10_000, 2, False, (finding,))
    assert verdict.needs_devices
    assert verdict.sentence().startswith("wait: the devices of this stage cannot settle the difference")
    assert verdict.as_json()["needs_devices"] is True
    few = replace(finding, devices=(5000, 99))
    for other in (replace(verdict, findings=(few,)), replace(verdict, reached=150)):
        assert (other.decision, other.needs_devices) == ("wait", False)
    assert not replace(verdict, given_up_too_often=True).needs_devices


@pytest.mark.parametrize(("gave_up", "decision"), [(1, "wait"), (5, "stop")])
def test_devices_that_give_it_up_stop_a_rollout(gave_up: int, decision: str) -> None:
    """They may report nothing with it: what they say is that it is gone."""
    rows = []
    for number in range(200):
        report = DeviceReport(f"d{number}", "rpi5")
        given_up = [{"bundle": NEW, "reason": "it does not load"}] if number < gave_up else []
        about = {**report.as_json(), "given_up": given_up}
        content = {**snapshot_of(NEW if number == 9 else OLD, 0.0, 10.0, 300, 3), "report": about}
        rows.append(decoded(json.dumps(content).encode()))
    verdict = judged(fleets(rows)["detector"], OLD, NEW)
    assert (verdict.decision, verdict.given_up, verdict.reached) == (decision, gave_up, gave_up + 1)


def test_a_bundle_that_nobody_has() -> None:
    fleet = fleets([row()])["detector"]
    with pytest.raises(UsageError, match=f"no device reports bundle {NEW}; reported are {OLD}"):
        judged(fleet, OLD, NEW)


# --- the verb ----------------------------------------------------------------------------------------------


def write(folder: Path, bad_of_new: int) -> Path:
    path = folder / "rows.jsonl"
    with path.open("wb") as file:
        for number in range(300):
            report = DeviceReport(f"d{number}", "rpi5" if number % 2 else "n100", "stable")
            file.write(report(snapshot_of(OLD, 0.0, 10.0, 300, number % 5)) + b"\n")
            new = number < 150
            bundle, since = (NEW, 10.0) if new else (OLD, 10.5)
            bad = number % 5 + bad_of_new * new
            file.write(report(snapshot_of(bundle, since, 20.0, 300, bad)) + b"\n")
        file.write(b"no row\n")
    return path


@pytest.mark.parametrize(("bad", "decision", "code"), [(0, "promote", 0), (30, "stop", 1)])
def test_the_verb_shows_the_table_and_the_verdict(
    bad: int, decision: str, code: int, tmp_path: Path, call: Call
) -> None:
    path = write(tmp_path, bad)
    done = call("release", "fleet", path, "--channel", "stable")
    assert done.exit_code == code
    assert f"  {decision}: " in done.stdout
    assert f"{NEW} against {OLD}" in done.stdout
    assert "1 rows can't be used" in done.stdout
    (model,) = answer(call("release", "fleet", path, "--json"))["models"]
    assert (model["devices"], model["rollout"]["decision"]) == (300, decision)
    assert sorted((line["class"], line["bundle"], line["devices"]) for line in model["lines"]) == [
        ("n100", OLD, 75), ("n100", NEW, 75), ("rpi5", OLD, 75), ("rpi5", NEW, 75),
    ]  # fmt: skip


def test_mistakes_of_the_verb(tmp_path: Path, call: Call) -> None:
    def told(*args: object) -> str:
        done = call("release", "fleet", *args)
        assert done.exit_code == 2
        return done.stderr

    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")
    assert "no device reports found; 1 rows can't be used" in told(path)
    assert "file not found" in told(tmp_path / "x.jsonl")
    (tmp_path / "empty").mkdir()
    assert "no .json, .jsonl, .ndjson files" in told(tmp_path / "empty")
    write(tmp_path, 0)
    assert f"bundle {OLD} is the oldest one reported; give --old" in told(path, "--new", OLD)


def test_with_more_measures_each_has_to_be_surer() -> None:
    """All of them together are wrong as seldom as one alone."""
    rng, rows = np.random.default_rng(0), []
    for number in range(400):
        device, bad = f"d{number}", rng.integers(0, 30, 2).tolist()
        before = replace(row(device=device, until=10.0), failed=bad[0])
        whole = replace(before, until=BEGAN + 20.0, answers=600, failed=sum(bad))
        changed = replace(row(NEW, device, 10.0, 20.0), failed=bad[1])
        rows += [before, changed if number % 2 else whole]
    fleet = fleets(rows)["detector"]
    one, both = (judged(fleet, OLD, NEW, measures()[:count]).findings[0] for count in (1, 2))
    assert (one.devices, one.difference) == (both.devices, both.difference) == ((200, 200), one.difference)
    assert both.low < one.low < one.high < both.high

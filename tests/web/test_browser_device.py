"""``edgekit devices --browser`` with Chromium as the phone: from the address to the bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.bundle.device_evidence import device_records, lines
from edgekit.compiler.bench.history import bundle_facts
from edgekit.devices import inventory
from edgekit.errors import DeviceError, UsageError
from edgekit.web import browser_device
from edgekit.web.browser_device import measure_in_browser
from tests.fixtures import models
from tests.fixtures.command_line import Call, answer
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.models import COLOUR_CARD, COLOURS, SWAPPED, colours_bundle, model_bundle
from tests.report.browser import DESK, PHONE
from tests.web.host import WAIT_MS, violations

pytest.importorskip("cryptography", reason="cryptography is not installed (the extra browser)")
pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
ENDED = "body:is([data-state=sent], [data-state=failed])"


class Phone:
    """A command in a thread; the browser stays in this one, because Playwright's objects belong to it."""

    def __init__(self, command: Any) -> None:
        self.lines: list[str] = []
        self.url = ""
        self.result: Any = None
        self._shown = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(command,), daemon=True)
        self._thread.start()
        assert self._shown.wait(60), self.result

    def _run(self, command: Any) -> None:
        try:
            self.result = command(self._notify)
        except Exception as problem:
            self.result = problem
            self._shown.set()

    def _notify(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("https://"):
            self.url = line
            self._shown.set()

    def end(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def start(page: Any) -> str:
    """Press Start and return the page's error; "" when the report was sent."""
    page.locator("#start:enabled").wait_for()
    page.evaluate("document.body.dataset.state = 'test'")
    page.click("#start")
    page.wait_for_selector(ENDED, timeout=WAIT_MS)
    return str(page.inner_text("#problem")) if page.is_visible("#problem") else ""


def measure(program: Any, phone: Phone, pictures: Path | None = None) -> list[str]:
    """Press Start, and return the lines of the page."""
    context = program.new_context(ignore_https_errors=True)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.goto(phone.url)
    assert start(page) == ""
    found = [" ".join(row.split()) for row in page.locator("#checks li").all_inner_texts()]
    for size in (DESK, PHONE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert violations(page) == []
        if pictures:
            page.screenshot(path=pictures / f"web-measure-{size[0]}.png", full_page=True)
    assert said == []
    context.close()
    return found


def test_a_phone_s_figures_arrive(program: Any, npm_package: Path, tmp_path: Path, call: Call) -> None:
    """EDGEKIT_SCREENSHOTS: the folder that screenshots stay in."""
    right = onnx_bytes(COLOURS)
    bundle = model_bundle({"right": right, "wrong": onnx_bytes(SWAPPED)}, right, COLOUR_CARD)
    path = bundle.save(tmp_path / "colours.edgekit")
    phone = Phone(
        lambda notify: measure_in_browser(
            path, "lab phone", 0.5, notify, npm_packages=[npm_package], listen="127.0.0.1:0", merge=True
        )
    )
    pictures = os.environ.get("EDGEKIT_SCREENSHOTS")
    rows = measure(program, phone, Path(pictures) if pictures else None)
    address, report = phone.end()
    assert address == "browser:lab phone"
    assert rows[0].startswith("passed right, onnxruntime-web 1.30.0, WebAssembly: ")
    assert rows[1].startswith("not used wrong on wasm: ")
    (known,) = answer(call("devices", "--json"))["devices"]
    assert (known["address"], known["machine"]) == (address, "browser")
    assert known["cpu"] == report.device.cpu != "lab phone"
    assert known["engines"] == ["onnxruntime-web 1.30.0, WebAssembly"]
    assert "browser:lab phone" in call("devices").stdout
    good, bad = report.results
    assert good["p50_ms"] <= good["p95_ms"]
    assert good["seconds"] >= 0.5
    assert "SNR -6.0 dB; the limit is 40.0 dB" in bad["status"]
    text = report.render()
    assert "reported by the device: " in text
    assert "not measured by this machine" in text
    with Bundle.open(path) as merged:
        merged.verify_entries()
        (record,) = device_records(merged.manifest)
        shown = "\n".join(lines(merged.manifest))
        assert merged.manifest["variants"] == bundle.manifest["variants"]
    assert record.title.startswith("lab phone (browser, Linux")
    assert record.title.endswith(", by WebAssembly in a browser, reported by the device")
    (row,) = record.rows("right")
    assert (row["p50_ms"], row["drift_percent"]) == (good["p50_ms"], good["drift_percent"])
    assert record.rows("wrong") == []
    assert good["status"] in shown
    assert "not used: " in shown


def test_the_figures_of_a_built_bundle_are_in_its_report(
    program: Any, npm_package: Path, tmp_path: Path, call: Call
) -> None:
    path, page = tmp_path / "small.edgekit", tmp_path / "report.html"
    edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort"]).save(path)
    phone = Phone(
        lambda notify: measure_in_browser(
            path, "lab phone", 0.5, notify, npm_packages=[npm_package], listen="127.0.0.1:0", merge=True
        )
    )
    measure(program, phone)
    _, report = phone.end()
    title = "by WebAssembly in a browser, reported by the device"
    text = call("inspect", str(path)).stdout
    assert title in text
    assert report.results[0]["status"] in text
    assert call("report", str(path), "-o", str(page)).exit_code == 0
    assert title in page.read_text("utf-8")


def test_a_page_that_was_hidden_is_not_a_measurement(program: Any, npm_package: Path, tmp_path: Path) -> None:
    path = colours_bundle().save(tmp_path / "c.edgekit")
    phone = Phone(
        lambda notify: measure_in_browser(
            path, None, 0.5, notify, npm_packages=[npm_package], listen="127.0.0.1:0"
        )
    )
    context = program.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(phone.url)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    assert start(page).startswith("The page was hidden, and browsers slow hidden pages down.")
    page.evaluate("delete document.hidden")
    assert start(page) == ""
    context.close()
    _, report = phone.end()
    assert len(report.results) == 1


def test_another_key_is_refused_and_the_page_says_so(program: Any, npm_package: Path, tmp_path: Path) -> None:
    path = colours_bundle().save(tmp_path / "c.edgekit")
    before = path.read_bytes()
    phone = Phone(
        lambda notify: measure_in_browser(
            path, None, 0.5, notify, npm_packages=[npm_package], listen="127.0.0.1:0", merge=True
        )
    )
    context = program.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.goto(phone.url + "x")
    said = "The report was refused: the report is not signed with the key of this page's address"
    assert start(page) == said
    assert path.read_bytes() == before
    assert inventory.known_devices() == []
    page.goto("about:blank")  # a change of the key alone loads nothing
    page.goto(phone.url)
    assert start(page) == ""
    context.close()
    phone.end()
    assert path.read_bytes() != before


def test_without_a_report_nothing_is_written(
    npm_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_device, "WAIT_SECONDS", 0.3)
    path = colours_bundle().save(tmp_path / "c.edgekit")
    before = path.read_bytes()
    with pytest.raises(DeviceError, match=r"no report arrived in 0\.005 minutes; nothing was written"):
        measure_in_browser(
            path, None, 0.1, print, npm_packages=[npm_package], listen="127.0.0.1:0", merge=True
        )
    assert path.read_bytes() == before
    assert inventory.known_devices() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "b", "--browser", "B"], "--browser measures one device; give one name for it, or none"),
        (["--merge"], "--merge goes with --browser"),
        (["--listen", "127.0.0.1:0"], "--listen goes with --browser"),
        (["--browser", "B", "--seconds", "0"], "--seconds is 0; it must be above 0, and at most 600"),
        (["--browser", "B", "--seconds", "nan"], "--seconds is nan; it must be above 0"),
        (["--browser", "B", "--listen", "box:0"], "--listen is 'box:0'; it must begin with an IP address"),
        (["a\x1b", "--browser", "B"], "the device's name must be 1 to 60 printable characters"),
    ],
)
def test_options_that_are_not_valid(words: list[str], said: str, call: Call, tmp_path: Path) -> None:
    path = colours_bundle().save(tmp_path / "c.edgekit")
    result = call("devices", *[str(path) if word == "B" else word for word in words])
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_port_in_use_is_an_error(npm_package: Path, tmp_path: Path) -> None:
    import socket

    path = colours_bundle().save(tmp_path / "c.edgekit")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(
            UsageError, match=r"can't listen on 127\.0\.0\.1:\d+: .*; choose another --listen"
        ):
            measure_in_browser(path, None, 1, print, npm_packages=[npm_package], listen=listen)


def test_the_address_is_a_qr_code_where_segno_is_installed() -> None:
    segno = pytest.importorskip("segno", reason="segno is not installed (the extra browser)")
    url = "https://192.168.1.20:40913/abc/measure.html#key"
    lines_shown = browser_device._invitation(url, "AB:CD")
    assert lines_shown[1] == url
    code = segno.make(url, error="l")
    rows = [line for line in lines_shown if set(line) <= set(" \u2580\u2584\u2588")]
    assert {len(row) for row in rows} == {code.symbol_size(border=4)[0]}
    assert len(rows) == (code.symbol_size(border=4)[1] + 1) // 2


def test_the_command(program: Any, npm_package: Path, tmp_path: Path) -> None:
    path = colours_bundle().save(tmp_path / "c.edgekit")
    words = ["devices", "lab", "--browser", path, "--seconds", "0.5", "--npm-package", npm_package, "--json"]
    command = [sys.executable, "-m", "edgekit", *map(str, words), "--listen", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, encoding="utf-8") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        url = next(line.strip() for line in running.stderr if line.strip().startswith("https://"))
        context = program.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(url)
        assert start(page) == ""
        context.close()
        shown = json.loads(running.stdout.read())
        running.stderr.read()
    assert running.returncode == 0
    assert [row["address"] for row in shown["devices"]] == ["browser:lab"]
    assert [row["variant"] for row in shown["results"]] == ["colours"]
    with Bundle.open(path) as opened:
        assert shown["bundle"] == bundle_facts(opened)
    assert (shown["machine"]["machine"], shown["machine"]["isa"]) == ("browser", [])
    assert "Chrom" in shown["machine"]["system"]

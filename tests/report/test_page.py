"""The page as text: complete, escaped, and without anything to load."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from edgekit.errors import MissingDependency, UsageError
from edgekit.report.page import need_packages, page_of, write_page
from edgekit.tensor_spec import Json
from tests.report.reported import HOSTILE, reported_bundle

pytestmark = pytest.mark.needs_report


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_has_the_advice_and_the_text_report_s_facts() -> None:
    page = page_of(reported_bundle())
    assert "<p>Next: copy the bundle to the device and run edgekit verify there.</p>" in page
    assert "self-mAP 0.072; 0.750 is required" in page
    assert "Compared with the source model on 8 files" in page
    assert "1 block stays float: conv" in page
    assert "channels reach from 0.16 to 132.7 under one scale" in page
    for chart in ("variants", "candidates-0", "damage-0"):
        assert f'data-chart="{chart}"' in page
    assert len(page.encode()) < 4_000_000


def test_what_comes_from_a_file_is_never_markup() -> None:
    plain, page = page_of(reported_bundle()), page_of(reported_bundle(node=HOSTILE, reason=HOSTILE))
    assert HOSTILE not in page
    assert escape(HOSTILE, quote=False)[:30] in page
    # The same elements as with harmless names: none was added, and none was cut short.
    assert [tag for tag, _ in Elements(page).found] == [tag for tag, _ in Elements(plain).found]
    assert not [tag for tag, _ in Elements(page).found if tag == "img"]


def test_the_page_loads_nothing_and_runs_its_own_script_alone() -> None:
    page = page_of(reported_bundle())
    elements = Elements(page).found
    assert not [a for _, a in elements if "src" in a]
    assert all((a["href"] or "").startswith("#") for _, a in elements if "href" in a)
    policy = next(a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "eval" not in policy
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert re.findall(r"'sha256-(.*?)'", policy) == [digest]


def test_a_link_of_the_contents_has_its_section() -> None:
    elements = Elements(page_of(reported_bundle())).found
    names = {attributes.get("id") for _, attributes in elements}
    links = [attributes["href"] for tag, attributes in elements if tag == "a"]
    assert len(links) >= 4
    assert {(link or "")[1:] for link in links} <= names


def test_each_variant_to_choose_from_has_four_tiles() -> None:
    page = page_of(reported_bundle())
    assert page.count('<div class="offer"') == page.count('type="radio"') == 2
    assert page.count("<dt>") == 8
    for tile in (
        '<dt>faster than fp32</dt><dd class="figure">1.7x</dd><dd>6 ms a run on A CPU, 2 threads, fp32',
        '<dt>smaller than fp32</dt><dd class="figure">2.7x</dd><dd>1.5 MB of 4.0 MB</dd>',
        '<dt>accuracy kept</dt><dd class="figure">91.0 %</dd>',
        '<dt>verified</dt><dd class="figure">yes</dd><dd>on Ort 1</dd>',
    ):
        assert tile in page


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    bundle = reported_bundle()
    for variant in bundle.variants:
        variant.evidence.pop("timing", None)  # type: ignore[attr-defined]
        variant.evidence.pop("search", None)  # type: ignore[attr-defined]
    page = page_of(bundle)
    assert "data-chart" not in page
    assert "<svg" not in page


def test_measured_nodes_are_shown_with_units() -> None:
    called: dict[str, Json] = {"source": None, "source_op": "", "scope": "", "merged": []}
    found = {
        "variant": "ort-int8",
        "threads": 1,
        "nodes_ms": 2.0,
        "run_ms": 2.2,
        "how": "",
        "nodes": [
            {"node": "n", "op": "Conv", "ms": 1.5, **called, "source": HOSTILE},
            {"node": "b", "op": "Add", "ms": 0.5, **called},
        ],
        "no_times": "",
        "against": "ort-fp32",
        "values": [
            {
                "node": "b",
                "op": "Add",
                "value": "b",
                "finite": True,
                "snr_db": 20.0,
                "adds_db": 21.5,
                **called,
            }
        ],
        "no_values": "",
        "parts": {},
        "causes": [],
        "price": "",
        "notes": [],
    }
    page = page_of(reported_bundle(), explained=[found])  # type: ignore[list-item]
    assert "2 ms in 2 nodes, 1 thread; a run takes 2.2 ms." in page
    assert '<td class="number">1.5 ms</td><td class="number">75.0%</td>' in page
    assert '<td class="number">21.5 dB</td><td class="number">20.0 dB</td>' in page
    assert HOSTILE not in page


def test_processors_of_an_accelerated_copy_are_shown_with_the_reasons() -> None:
    reason = f"WebGPU has no kernel for {HOSTILE}"
    called: dict[str, Json] = {"source": None, "source_op": "", "scope": "", "merged": []}
    copy = {
        "variant": "ort-fp32@gpu",
        "device": "GPU (WebGPU, 1 of 3 nodes on the CPU)",
        "refused": "",
        "nodes": {"CPUExecutionProvider": 1, "WebGpuExecutionProvider": 2},
        "copies": 2,
        "placement": [
            {"node": "a", "op": "Conv", "provider": "WebGpuExecutionProvider", "reason": "", **called},
            {"node": "b", "op": "TopK", "provider": "CPUExecutionProvider", "reason": reason, **called},
            {"node": "c", "op": "Conv", "provider": "WebGpuExecutionProvider", "reason": "", **called},
        ],
        "fallback_reasons": {reason: 1},
        "limit_db": 60.0,
        "wrong": [
            {"node": "c", "op": "Conv", "value": "c", "finite": True, "snr_db": 9.0, "adds_db": 9.5, **called}
        ],
        "values": [],
        "no_values": "",
    }
    page = page_of(reported_bundle(), accelerated=[copy])  # type: ignore[list-item]
    assert "Verified: a session uses it. 3 nodes: CPU 1, WebGpu 2; 2 copies between the processors." in page
    assert '<th scope="row">WebGpu</th><td class="number">2</td><td>Conv 2</td>' in page
    assert "<summary>1 nodes on the CPU</summary>" in page
    assert '<td class="number">9.5 dB</td><td class="number">9.0 dB</td>' in page
    assert escape(reason, quote=False)[:40] in page
    assert HOSTILE not in page
    whole = {**copy, "placement": [], "nodes": {}, "fallback_reasons": {}, "wrong": []}
    whole |= {"device": "GPU (LiteRT)", "refused": "output y: 9 dB"}
    page = page_of(reported_bundle(), accelerated=[whole])  # type: ignore[list-item]
    assert "Refused: output y: 9 dB. GPU (LiteRT) runs the whole graph." in page
    assert "Processors of" not in page_of(reported_bundle())


def test_the_same_bundle_gives_the_same_page() -> None:
    assert page_of(reported_bundle()) == page_of(reported_bundle())


def test_what_is_missing_is_said_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency) as missing:
        need_packages()
    assert str(missing.value).startswith(
        "jinja2 is not installed, and writing a report needs it: pip install"
    )
    assert "[report]" in str(missing.value)


def test_a_page_that_can_not_be_written_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^can't write .*absent/r.html: No such file or directory; choose"):
        write_page(tmp_path / "absent" / "r.html", "page")

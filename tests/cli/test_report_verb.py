"""``edgekit report`` and ``build --report``."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from tests.fixtures.command_line import Call, answer

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_report]


def test_report_writes_one_page_and_says_what_it_begins_with(
    bundle: Path, call: Call, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    result = call("report", bundle, "-o", page)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("  On ort, use ort-fp32 (")
    assert f"  {page}  " in result.stdout
    assert page.read_text("utf-8").startswith("<!doctype html>")
    found = answer(call("report", bundle, "-o", page, "--json"))
    assert found["report"] == str(page)
    assert len(found["advice"]) == 3


def test_report_measures_nodes_where_it_is_asked_to(bundle: Path, call: Call, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert call("report", bundle, "-o", page, "--explain").exit_code == 0
    assert "<h2>Nodes of ort-fp32</h2>" in page.read_text("utf-8")


def test_build_writes_the_page_too(model: Path, call: Call, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert call("build", model, "-t", "ort", "-o", tmp_path / "m.edgekit", "--report", page).exit_code == 0
    written = page.read_text("utf-8")
    assert "<h2>ort-fp32</h2>" in written
    assert "m.edgekit, sha256 " in written


@pytest.mark.parametrize("verb", ["report", "build"])
def test_a_page_has_the_name_of_one(bundle: Path, model: Path, call: Call, tmp_path: Path, verb: str) -> None:
    given = {
        "report": ("report", bundle, "-o", "report.pdf"),
        "build": ("build", model, "-t", "ort", "-o", tmp_path / "n.edgekit", "--report", "report.pdf"),
    }
    result = call(*given[verb])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: report.pdf must be an HTML page; end its name in .html\n  nothing was written\n"
    )
    assert not (tmp_path / "n.edgekit").exists()


def test_samples_without_a_card_are_refused_and_nothing_is_written(
    bundle: Path, call: Call, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    result = call("report", bundle, "-o", page, "--samples", tmp_path)
    assert result.exit_code == 2
    assert "has no card with a task, so its samples are arrays" in result.stderr
    assert result.stderr.endswith("nothing was written\n")
    assert not page.exists()


def test_a_damaged_bundle_has_no_page(bundle: Path, call: Call, tmp_path: Path) -> None:
    """Also if the page needs nothing of the damaged entry."""
    whole = bundle.read_bytes()
    with Bundle.open(bundle) as opened:
        contents = {entry["name"]: bytes(opened.read(entry["name"])) for entry in opened.manifest["entries"]}
    for name, content in contents.items():
        at = whole.rindex(content)
        bundle.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        result = call("report", bundle, "-o", tmp_path / "report.html")
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: {bundle} is damaged\n  entry {name}")
        assert not (tmp_path / "report.html").exists()


def test_the_page_is_opened_in_the_browser(
    bundle: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    page = tmp_path / "a report.html"

    def find_none(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", find_none)
    result = call("report", bundle, "-o", page, "--open")
    assert opened == [page.as_uri()]
    assert result.stderr == f"no browser was found here; open {page} in one\n"

"""The site: all documents in its navigation, all verbs, options and errors in its reference, no warning."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from docs.site.__main__ import build
from docs.site.commands import commands_page
from docs.site.error_examples import CLASSES, CODES
from docs.site.errors import classes, codes, errors_page, makers, sources
from docs.site.pages import GENERATED, configuration, documents, link_on_site
from edgekit.cli.command_group import all_verbs
from edgekit.errors import EdgeKitError
from tests.docs.documents import ROOT
from tests.docs.messages import is_said
from tests.report.browser import DESK, PHONE, browser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def pages_in(entries: Any) -> Iterator[str]:
    """The pages of a navigation, in its order."""
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from pages_in(entry)


def test_the_navigation_has_every_page_once() -> None:
    found = list(pages_in(tomllib.loads(configuration(documents()))["project"]["nav"]))
    missing = {*documents().values(), *GENERATED} - set(found)
    assert missing == set(), "give it a place in the nav of docs/site/zensical.toml"
    assert len(found) == len(set(found)) == len(documents()) + len(GENERATED)
    on_disk = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert on_disk <= set(documents())


@pytest.mark.parametrize(
    ("link", "document", "on_site"),
    [
        ("decisions/0003-bundle-format.md", "docs/security.md", "decisions/0003-bundle-format.md"),
        ("../importing.md#a", "docs/decisions/0019-importers-by-entry-point.md", "../importing.md#a"),
        ("https://github.com/edgekit/edgekit/blob/main/docs/cards.md#x", "README.md", "cards.md#x"),
        ("https://raw.githubusercontent.com/edgekit/edgekit/main/docs/report.png", "README.md", "report.png"),
        ("docs/add-a-pass.md", "CONTRIBUTING.md", "add-a-pass.md"),
        ("../samples/README.md", "docs/cards.md", "https://github.com/edgekit/edgekit/blob/main/samples/README.md"),
        ("#a", "docs/cards.md", "#a"),
        ("https://onnx.ai/", "docs/cards.md", "https://onnx.ai/"),
    ],
)  # fmt: skip
def test_links_lead_to_pages_of_the_site_or_into_the_repository(
    link: str, document: str, on_site: str
) -> None:
    assert link_on_site(link, document, documents()) == on_site


@pytest.mark.parametrize("verb", sorted(all_verbs()))
def test_every_verb_is_described_with_all_of_its_options(verb: str) -> None:
    command = all_verbs()[verb]
    section = re.search(rf"^## {verb}\n(.*?)(?=^## |\Z)", commands_page(), re.DOTALL | re.MULTILINE)
    assert section is not None
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in (*parameter.opts, *parameter.secondary_opts):
                row = re.search(rf"^`(?:[^`]*[ /])?{name}(?:[ ,/][^`]*)?`\n:   \S", section[1], re.MULTILINE)
                assert row is not None, name
        else:
            assert parameter.make_metavar(click.Context(command)) in section[1]


def every_error(below: type[EdgeKitError] = EdgeKitError) -> Iterator[type[EdgeKitError]]:
    for each in below.__subclasses__():
        yield each
        yield from every_error(each)


def test_every_error_class_and_code_has_its_section() -> None:
    page = errors_page()
    names = {each.__name__ for each in every_error() if each.__module__ == "edgekit.errors"}
    assert names == set(CLASSES) == {each.__name__ for each in classes()[1:]}
    assert set(CODES) == set(codes())
    for each in classes()[1:]:
        section = page.partition(f"\n## {each.__name__}\n")[2].partition("\n## ")[0]
        assert f"Exit code {each.exit_code}." in section
        assert CLASSES[each.__name__].message in section
        assert CLASSES[each.__name__].remedy in section
        assert makers()[each.__name__], "it is made nowhere"
    for code, (severity, _) in codes().items():
        section = page.partition(f"\n### {code}\n")[2].partition("\n### ")[0]
        assert section.startswith(f"\n{severity.capitalize()}: ")
        assert CODES[code].message in section
        assert CODES[code].remedy in section


def test_every_code_that_the_source_has_is_listed() -> None:
    used = {code for tree in sources().values() for code in re.findall(r"'(EK\d{4})'", ast.dump(tree))}
    assert used <= set(codes())
    assert len(used) > 5


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "MissingDependency"])
def test_examples_are_messages_of_modules_that_make_the_error(name: str) -> None:
    assert is_said(CLASSES[name].message.partition("\n")[0], makers()[name])


def test_a_message_that_nobody_says_is_found() -> None:
    assert not is_said("the model is too old for this compiler: update it", sources())


@pytest.mark.parametrize("code", CODES)
def test_examples_of_codes_are_messages_of_the_source(code: str) -> None:
    assert is_said(CODES[code].message, (path for path in sources() if path != "edgekit/diagnostics.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder / "site"


def fetched(html: str) -> list[str]:
    """What a page loads: scripts, styles, fonts and pictures; links that a reader follows are none."""
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html)
    loads = [tag for tag in tags if not re.search(r'rel="?(canonical|next|prev|edit)\b', tag)]
    return [found for tag in loads for found in re.findall(r'(?:src|href)="?([^"\s>]+)', tag)]


@pytest.mark.needs_site
def test_it_builds_without_a_warning_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(documents())
    loaded = {url for page in pages for url in fetched(page.read_text("utf-8"))}
    assert len(loaded) > 3
    assert [url for url in loaded if re.match(r"(\w+:)?//", url)] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text("utf-8")) == [], style


@pytest.mark.needs_site
def test_a_link_to_no_page_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATED, "errors.md", lambda: "# Errors\n\n[nowhere](nowhere.md)\n")
    with pytest.raises(SystemExit, match="the site was not built"):
        build(tmp_path)


@pytest.mark.needs_site
@pytest.mark.needs_browser
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_in_a_browser_a_page_fetches_nothing_fits_and_search_finds(site: Path, size: tuple[int, int]) -> None:
    with browser() as running:
        page = running.new_page(viewport={"width": size[0], "height": size[1]})
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.append(request.url))
        for name in ("index", "commands", "errors", "ops", "measured", "scoreboard"):
            page.goto((site / f"{name}.html").as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"{name} is {wide} pixels wider than the window"
        page.keyboard.press("/")
        page.keyboard.type("calibration")
        page.wait_for_selector("a[href*='quantization.html']:has-text('calibration')")
        assert [line for line in said if not line.startswith((site.as_uri(), "data:", "blob:"))] == []


AXE_PAGES = (
    *(
        "index",
        "documents",
        "tutorial",
        "install",
        "raspberry-pi",
        "deploy-android",
        "deploy-iphone",
        "cards",
    ),
    *(
        "quantization",
        "accuracy-drop",
        "serving",
        "refused-builds",
        "environment",
        "commands",
        "errors",
        "ops",
        "scoreboard",
    ),
)
"""Pages that newcomers read first, and one of each generated kind."""


@pytest.mark.needs_site
@pytest.mark.needs_browser
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_pages_pass_axe(site: Path, size: tuple[int, int]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with browser() as running:
        page = running.new_page(viewport={"width": size[0], "height": size[1]})
        for name in AXE_PAGES:
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_function("document.querySelector('.md-nav--primary').ariaLabel === 'All pages'")
            found = Axe().run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], name

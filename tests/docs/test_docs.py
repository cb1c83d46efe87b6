"""Documents say what is: links lead somewhere, verbs are explained, code blocks are code, cards are cards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgekit.cards import load_card
from edgekit.cli import main

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "docs", ROOT / "samples", ROOT / "targets")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in folder.rglob("*.md"))])


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8"))
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert missing == []


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_into_a_page_lead_to_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text("utf-8"))
    assert [
        link for link in links if link[1] not in anchors(path.parent / link[0] if link[0] else path)
    ] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_python_blocks_are_python(path: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL):
        compile(block, str(path), "exec")


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_is_in_the_readme(verb: str) -> None:
    assert f"`edgekit {verb}`" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_has_exactly_two_commands_and_ci_runs_the_second() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"<!-- (\w+) command -->\n```sh\n(.*)\n```", text)
    assert [kind for kind, _ in commands] == ["main", "test"]
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "samples").rglob("*.toml")), ids=name)
def test_every_card_loads(path: Path) -> None:
    card = load_card(path)
    assert card.title
    assert load_card(path).as_json() == card.as_json()

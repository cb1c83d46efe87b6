"""Documents say what is: links lead somewhere, names and paths exist, commands are those of the CLI."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import click
import pytest

from edgekit.cli import main
from edgekit.cli.command_group import all_verbs
from edgekit.errors import CardError
from edgekit.processing import load_card
from edgekit.processing.cascade import read_stages
from edgekit.system.formats.strict_tables import load_toml
from tests.docs.documents import DOCUMENTS, ROOT, linked_file, name_of, python_blocks, repository_url

TREE = ("edgekit/", "targets/", "tests/", "docs/", "samples/")
"""A name in backticks that begins so is a path of this repository."""
HISTORY = {"CHANGELOG.md"}
"""Documents about the past, whose paths were right then."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8"))
    inside = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    absolute = [
        link for link in links if (file := linked_file(link)) is not None and not (ROOT / file).exists()
    ]
    assert inside + absolute == []


def test_the_readme_s_links_work_on_a_package_index() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert [link for link in links if not link.startswith("https://")] == []
    ours = repository_url().removeprefix("https://github.com/")
    assert [link for link in links if f"/{ours}/" in link and linked_file(link) is None] == []
    assert sum(linked_file(link) is not None for link in links) >= 4


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_rows_are_below_the_head_of_a_table(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert [table for table in tables if not re.match(r".*\n\|([ :-]+\|)+\n", table)] == []


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_into_a_page_lead_to_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", path.read_text("utf-8"))
    assert [
        link for link in links if link[1] not in anchors(path.parent / link[0] if link[0] else path)
    ] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_python_blocks_are_python_and_their_imports_resolve(path: Path) -> None:
    for block in python_blocks(path.read_text("utf-8")):
        tree = ast.parse(block.source, str(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                ours = [alias.name for alias in node.names if alias.name.split(".")[0] == "edgekit"]
                assert all(find_spec(name) for name in ours)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "edgekit":
                module = import_module(str(node.module))
                listed = getattr(module, "__all__", ())  # what is loaded lazily may need an extra
                names = [alias.name for alias in node.names if alias.name not in listed]
                assert [name for name in names if not hasattr(module, name)] == []


def resolves(dotted: str) -> bool:
    """Whether ``edgekit.a.b.C.d`` names a module, something in one, or an attribute of that."""
    parts = dotted.split(".")
    found: object = import_module(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            try:
                import_module(".".join(parts[:end]))
            except ModuleNotFoundError:
                return False
        found = getattr(found, part)
    return True


def is_record(path: Path) -> bool:
    """Whether a document says what was measured or decided at its time."""
    place = path.relative_to(ROOT / "docs").as_posix() if path.is_relative_to(ROOT / "docs") else ""
    return place.startswith(("measured", "decisions/"))


@pytest.mark.parametrize("path", [d for d in DOCUMENTS if d.name not in HISTORY], ids=name_of)
def test_names_and_paths_in_backticks_exist(path: Path) -> None:
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL))
    paths = [name for name in quoted if name.startswith(TREE) and not set(name) & set(" <>*{}()")]
    names = [name for name in quoted if re.fullmatch(r"edgekit(\.[a-z_]\w*)+(\.[A-Z]\w*)?", name)]
    names = [name for name in names if not name.endswith((".h", ".js", ".lock", ".wasm"))]  # files
    metrics = {"edgekit.inference.duration", "edgekit.stage.duration", "edgekit.inferences"}
    metrics |= {
        "edgekit.fallbacks",
        "edgekit.model.info",
        "edgekit.names",
    }  # of OpenTelemetry, of Core ML
    metrics |= {"edgekit.device.class", "edgekit.channel"}  # of OpenTelemetry, too
    metrics |= {f"edgekit.{name}" for name in ("variant", "engine", "device", "precision", "batch", "path")}
    metrics |= {"edgekit.fallback", "edgekit.fallback.from"}  # of spans
    groups = {
        "edgekit.compilers",
        "edgekit.importers",
        "edgekit.runners",
        "edgekit.tasks",
    }  # of entry points
    missing = [name for name in paths if not (ROOT / name.partition(":")[0]).exists()]
    if is_record(path):  # the script of an earlier figure is in the history, as docs/measured.md says
        missing = [name for name in missing if not name.startswith("tests/benchmarks/bench_")]
    assert missing + [name for name in names if name not in metrics | groups and not resolves(name)] == []


def commands(text: str) -> list[str]:
    """The command lines of ``edgekit`` in blocks of shell and in backticks."""
    found = re.findall(r"^(?:    )?(?:\$ )?(edgekit [a-z].*)$", text, re.MULTILINE)
    return found + re.findall(r"`(edgekit [a-z][^`\n]*)`", text)


@pytest.mark.parametrize("path", [d for d in DOCUMENTS if d.name not in HISTORY], ids=name_of)
def test_commands_exist_with_their_options(path: Path) -> None:
    for line in commands(path.read_text("utf-8")):
        first, *words = line.partition("#")[0].split()[1:]
        verb = f"{first} {words[0]}" if words and isinstance(main.commands.get(first), click.Group) else first
        command = all_verbs().get(verb) or main.commands.get(first)
        assert command is not None, line
        known = {"-h", "--help"}
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                known |= {*parameter.opts, *parameter.secondary_opts}
        unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
        assert unknown == [], line


def test_every_document_is_linked_from_the_list_of_documents() -> None:
    text = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(((?:measured/)?[a-z0-9-]+\.md)\)", text))
    docs = ROOT / "docs"
    pages = [*docs.glob("*.md"), *(docs / "measured").glob("*.md")]
    assert linked == {path.relative_to(docs).as_posix() for path in pages} - {"README.md"}


def test_the_readme_is_short() -> None:
    """A reader sees the whole in one screen and a half; what is longer has a page in docs/."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_column_of_a_table_has_a_heading(path: Path) -> None:
    """A screen reader names a cell by its column."""
    lines = path.read_text("utf-8").splitlines()
    heads = [head for head, rule in pairwise(lines) if re.fullmatch(r"\|[-:| ]+\|", rule)]
    empty = [head for head in heads if "" in [cell.strip() for cell in head.strip("|").split("|")]]
    assert empty == []


def test_the_readme_has_exactly_two_commands_and_ci_runs_the_second() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.findall(r"<!-- (\w+) command -->\n```sh\n(.*)\n```", text)
    assert [kind for kind, _ in found] == ["main", "test"]
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_targets_page_lists_all_targets() -> None:
    folders = {path.name for path in (ROOT / "targets").iterdir() if (path / "__init__.py").exists()}
    text = (ROOT / "targets" / "README.md").read_text("utf-8")
    assert {folder for folder in folders if f"| `{folder}` |" in text} == folders


@pytest.mark.parametrize("path", sorted((ROOT / "samples" / "cards").glob("*.toml")), ids=name_of)
def test_every_card_loads(path: Path) -> None:
    card = load_card(path)
    assert card.title
    assert load_card(path).as_json() == card.as_json()


@pytest.mark.parametrize("path", sorted((ROOT / "samples" / "cascades").glob("*.toml")), ids=name_of)
def test_every_cascade_is_well_formed(path: Path) -> None:
    stages = load_toml(path.read_text("utf-8"), path.name, CardError)["stages"]
    read_stages([{k: v for k, v in stage.items() if k != "bundle"} for stage in stages[1:]], path.name)


def test_a_newcomer_s_questions_lead_to_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("### Where do I find ...\n")[2].partition("\nHow to add")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 9
    for row in rows:
        paths = re.findall(r"`([a-z]+/[^`]*)`", row)
        assert paths
        assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda path: path.name[:4]
)
def test_a_decision_has_the_number_of_its_file_and_a_title_that_fits_a_list(path: Path) -> None:
    title = re.match(r"# (\d+)\. (.+)\n", path.read_text("utf-8"))
    assert title is not None
    assert int(title[1]) == int(path.name[:4])
    assert len(title[2]) <= 65, title[2]


def test_no_two_decisions_have_one_number() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers))

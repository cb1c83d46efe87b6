from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from edgekit.cli import main
from edgekit.cli.command_group import SECTIONS, all_verbs
from edgekit.errors import EdgeKitError
from tests.fixtures.command_line import Call

ROOT = Path(__file__).resolve().parents[2]
GROUPED = {words.split()[1] for words in all_verbs() if " " in words} - main.commands.keys()
WITHOUT_GROUP = re.compile(rf"(?<!from )\bedgekit ({'|'.join(sorted(GROUPED))})(?![\w(/=*-]|\.\w)")
GROUPS = {name: each for name, each in main.commands.items() if isinstance(each, click.Group)}


def test_the_help_lists_verbs_by_section_then_groups(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = call("--help").stdout
    headings = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":")]
    assert headings == ["Options", *SECTIONS]
    lines = [line for line in text.split(f"{headings[1]}:")[1].splitlines() if line.startswith("  ")]
    listed = [line.split()[0] for line in lines]
    assert sorted(listed) == sorted(main.commands)
    assert listed[-len(GROUPS) :] == list(SECTIONS[headings[-1]])
    assert len(listed) - len(GROUPS) <= 15
    assert len({line.index(line.split()[1], 12) for line in lines}) == 1  # one column for all sections
    assert not any(line.endswith("...") for line in lines)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_verbs(group: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = call(group, "--help")
    verbs = result.stdout.split("Commands:\n")[1].splitlines()
    assert [f"{group} {line.split()[0]}" for line in verbs] == [
        verb for verb in all_verbs() if verb.startswith(f"{group} ")
    ]
    assert not any(line.endswith("...") for line in verbs)


@pytest.mark.parametrize(
    "pattern",
    ["edgekit/**/*.py", "targets/**/*.py", "docs/**/*.md", "docs/site/*.py", "samples/**/*.*", "*.md",
     "setup.cfg", ".github/**/*", ".ci/*"],
)  # fmt: skip
def test_documents_and_messages_name_the_group_of_a_verb(pattern: str) -> None:
    files = [path for path in ROOT.glob(pattern) if path.is_file() and path.name != "CHANGELOG.md"]
    assert files
    texts = {path: path.read_bytes().decode("utf-8", "replace") for path in files}
    found = {
        f"{path.relative_to(ROOT)}: {m[0]}"
        for path, text in texts.items()
        for m in WITHOUT_GROUP.finditer(text)
    }
    assert found == set()


def test_a_verb_without_its_group_is_found_in_a_text() -> None:
    text = "run `edgekit publish`, not edgekit release publish; from edgekit import build"
    assert WITHOUT_GROUP.findall(text) == ["publish"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bould"], "No such command 'bould'. (Did you mean one of: 'build', 'bundle rebuild'?)"),
        (["publsh"], "No such command 'publsh'. Did you mean 'release publish'?"),
        (["release", "publsh"], "No such command 'publsh'. Did you mean 'publish'?"),
        (
            ["model", "card", "--overwrit"],
            "No such option '--overwrit'. Did you mean '--overwrite'?",
        ),
    ],
)
def test_a_misspelt_command_or_option_gets_a_suggestion(words: list[str], said: str, call: Call) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: {said}"


@pytest.mark.parametrize(
    ("words", "raised", "code", "said"),
    [
        (["model", "import", "m", "-o", "m.onnx"], KeyboardInterrupt(), 130,
         "error: stopped\n  nothing was written\n"),
        (["model", "import", "m", "-o", "m.onnx"], EdgeKitError("no"), 2,
         "error: no\n  nothing was written\n"),
        (["store", "status", "--store", "s"], EdgeKitError("no"), 2, "error: no\n"),
        (["batch", "build", "m.toml"], KeyboardInterrupt(), 130,
         "error: stopped; what was built is kept; run the same command again to continue\n"),
    ],
)  # fmt: skip
def test_errors_of_grouped_verbs_state_what_was_written(
    words: list[str], raised: BaseException, code: int, said: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise raised

    for function in ("edgekit.import_model", "edgekit.build_all", "edgekit.runtime.store.commands.status"):
        monkeypatch.setattr(function, stop)
    result = call(*words)
    assert (result.exit_code, result.stderr, result.stdout) == (code, said, "")

"""Options over all verbs: one name has one placeholder, one type and one meaning."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest

from edgekit.cli.command_group import all_verbs
from edgekit.cli.request_options import MANY, Verb, request_class
from edgekit.system.declared_options import declared
from tests.fixtures.command_line import Call

VARIED = {
    "--output": "a file or a folder, as the verb writes",
    "--samples": "what they are for",
    "--force": "what is written although a check failed",
    "--memory-mb": "limit of a server's models, of one build",
    "--threads": "of an inference, of a training",
    "--reason": "of a rollback, of a publisher",
    "--report": "of one build, of all",
    "--verbose": "what is listed in addition",
}
"""Options whose help has to differ between verbs."""


def spelled(verb: str) -> Iterator[tuple[str, click.Option]]:
    for option in all_verbs()[verb].params:
        if isinstance(option, click.Option):
            yield max(option.opts, key=len), option


def kind(option: click.Option) -> str:
    name = "flag" if option.is_flag else option.type.name.lower()
    return {"integer range": "integer", "float range": "float"}.get(name, name)


def first_sentence(text: str) -> str:
    """What an option is, without which value it has by default, when it applies and how often it is given."""
    main = text.split("  [default")[0].split(". ")[0].rstrip(".")
    return main.split(": ", 1)[1] if main.startswith(("With --", "Instead of --")) else main


def test_an_option_has_one_placeholder_type_and_meaning() -> None:
    assert len(VARIED) <= 10
    found: dict[str, dict[tuple[str, str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for verb in all_verbs():
        for name, option in spelled(verb):
            context = click.Context(all_verbs()[verb])
            shown = "" if option.is_flag else option.make_metavar(context).replace(" RANGE", "")
            meaning = "" if name in VARIED else first_sentence(option.help or "")
            shown = "" if name in VARIED else shown
            found[name][shown, kind(option), meaning].append(verb)
    assert {name: dict(each) for name, each in found.items() if len(each) > 1} == {}


@pytest.mark.parametrize("verb", all_verbs())
def test_a_verb_with_many_options_has_headings(verb: str, call: Call) -> None:
    command = all_verbs()[verb]
    assert isinstance(command, Verb)
    names = [name for name, _ in spelled(verb)]
    headings = list(command.headed_options(click.Context(command)))
    assert (headings == ["Options"]) == (len(names) < MANY)
    assert command.headings.keys() <= {option.name for _, option in spelled(verb)}


def test_build_has_three_headings(call: Call) -> None:
    text = call("build", "--help").stdout
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Common:", "Accuracy:", "Advanced:"]
    common, accuracy, advanced = text.split("Common:")[1].replace("Advanced:", "Accuracy:").split("Accuracy:")
    assert "--precision" in common
    assert "--max-drop" in accuracy
    assert "--trust-pickle" in advanced


def test_a_second_value_of_an_option_is_refused(call: Call) -> None:
    """click would take the last one: of --precision fp16 --precision int8, nothing would be left of fp16."""
    result = call("build", "m.onnx", "-t", "ort", "--precision", "fp16", "-o", "a", "--precision", "int8")
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: --precision is given more than once\n")
    assert call("build", "m.onnx", "-o", "a", "--output", "b").stderr.endswith("-o is given more than once\n")


def test_flags_and_repeatable_options_may_come_twice(call: Call) -> None:
    result = call("build", "none.onnx", "-t", "ort", "-t", "tflite", "-q", "-q", "-o", "a")
    assert result.stderr == "error: none.onnx: file not found\n  nothing was written\n"


@pytest.mark.parametrize("request_name", ["BuildRequest", "ShrinkRequest", "DistilRequest", "ServeRequest"])
def test_an_editor_shows_the_sentence_of_each_option(request_name: str) -> None:
    """Language servers read the docstring in the source: it has the sentences of the command's help."""
    request = request_class(request_name)
    text = " ".join((inspect.getdoc(request) or "").partition("Args:")[2].replace("``", "").split())
    options = ((field.name, field.option._replace(default="", repeatable="")) for field in declared(request))
    sentences = [f"{name}: {option.help}" for name, option in options]
    assert text == " ".join(" ".join(sentences).split())

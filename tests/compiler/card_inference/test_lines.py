"""Lines of a card as TOML."""

from __future__ import annotations

import pytest

from edgekit.compiler.card_inference.lines import CardLine, key_path, table_text, toml_value
from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import load_toml


@pytest.mark.parametrize(
    "value",
    [
        True,
        3,
        -0.25,
        1e-30,
        "plain",
        'quotes " and \\ and \n and \t and \x7f and \x01',
        "漢字",
        [1, 2.5],
        ["a", "b"],
        {"a key": "b", "c": [1]},
        [],
    ],
)
def test_a_value_is_read_back(value: object) -> None:
    assert load_toml(f"x = {toml_value(value)}", "text", CardError) == {"x": value}


@pytest.mark.parametrize("name", ["images", "input.1", "input:0", "a b", "", "漢", 'a"b'])
def test_a_table_s_name_is_read_back(name: str) -> None:
    text = table_text(key_path("inputs", name), [CardLine("kind", "image")])
    assert load_toml(text, "text", CardError) == {"inputs": {name: {"kind": "image"}}}


def test_a_long_comment_stands_above() -> None:
    assert CardLine("a", 1, "short").text() == "a = 1  # short"
    assert CardLine("a", 1, "x" * 120, guessed=True).text() == f"# guessed: {'x' * 120}\na = 1"
    assert CardLine("a", 1).text() == "a = 1"


def test_no_comment_leaves_its_line() -> None:
    """Names come from files, which may hold line breaks."""
    assert load_toml(CardLine("a", 1, "b\nc = 2").text(), "text", CardError) == {"a": 1}

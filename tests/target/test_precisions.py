"""One table of precisions: whoever lists them reads it, so that a new one is a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from edgekit.cli import main as commands
from edgekit.compiler.build.build_options import FOR_SIZE, INT8, PRECISIONS, WEIGHT_FORMS
from edgekit.compiler.evaluate.verify import SNR_LIMITS_DB
from edgekit.target.precisions import TABLE, accuracy_rank, names_to_ask_for, precision_of
from edgekit.target.quant_rules import PALETTES

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_derived_is_what_it_was() -> None:
    assert PRECISIONS == {
        "fp32": ("fp32",),
        "fp16": ("fp16",),
        "fp16-arithmetic": ("fp32", "fp16-arithmetic"),
        "bf16": ("fp32", "bf16"),
        "int8-weights": ("fp32",),
        "int8-dynamic": ("fp32",),
        "palette6": ("fp32",),
        "palette4": ("fp32",),
        "fp8": ("fp32",),
        "int8": ("fp32",),
        "auto": ("fp32", "fp16", "fp16-arithmetic", "bf16"),
    }
    assert INT8 == ("int8", "auto")
    assert WEIGHT_FORMS == {
        "int8-weights": ("int8-weights",),
        "int8-dynamic": ("int8-dynamic",),
        "palette6": ("palette6",),
        "palette4": ("palette4",),
        "auto": ("int8-weights", "int8-dynamic"),
    }
    assert FOR_SIZE == ("int8-weights", "palette6", "palette4")
    assert PALETTES == ("palette6", "palette4")
    assert (SNR_LIMITS_DB["fp32"], SNR_LIMITS_DB["fp16"], SNR_LIMITS_DB["int8"]) == (100.0, 45.0, 20.0)


def test_rows_are_sound() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert sorted(row.accuracy_rank for row in TABLE) == list(range(len(TABLE)))
    floats = {row.name for row in TABLE if not row.parent}
    assert {row.parent for row in TABLE if row.parent} <= floats
    assert {row.name for row in TABLE if row.for_size or row.from_table} <= set(WEIGHT_FORMS)


@pytest.mark.parametrize(
    ("name", "row"),
    [(row.name, row.name) for row in TABLE]
    + [(f"{row.name}-2", row.name) for row in TABLE]
    + [
        ("int8-mixed-12", "int8-mixed"),
        ("int2", None),
        ("int8-", None),
        ("-2", None),
        ("", None),
        ("2", None),
    ],
)
def test_a_variant_s_precision_is_read(name: str, row: str | None) -> None:
    found = precision_of(name)
    assert (found.name if found else None) == row
    assert accuracy_rank(name) == (found.accuracy_rank if found else len(TABLE))


def test_the_command_line_takes_them() -> None:
    flag = next(option for option in commands.commands["build"].params if option.name == "precision")
    assert isinstance(flag.type, click.Choice)
    assert tuple(flag.type.choices) == names_to_ask_for()
    assert names_to_ask_for()[0] == "fp32"
    assert set(names_to_ask_for()) == set(PRECISIONS) | {row.name for row in TABLE if row.language_only}


def test_nobody_else_lists_them() -> None:
    """No tuple, list, set or table of the core holds two precisions by name, but for the one table."""
    names = {row.name for row in TABLE} - {"int8", "fp32", "fp16"}  # these are dtypes and goals as well
    found = []
    for path in sorted((ROOT / "edgekit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                parts = node.keys if isinstance(node, ast.Dict) else node.elts
                texts = {part.value for part in parts if isinstance(part, ast.Constant)}
                if len(names & texts) > 1:
                    found.append(f"{path.name}:{node.lineno}")
    assert found == []
    assert re.search(r"^TABLE", (ROOT / "edgekit/target/precisions.py").read_text("utf-8"), re.MULTILINE)

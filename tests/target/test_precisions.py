"""One table of precisions: whoever lists them reads it, so that a new one is a row."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from edgekit.cli import main as commands
from edgekit.compiler.evaluate.verify import SNR_LIMITS_DB
from edgekit.compiler.pipeline.build_options import PRECISIONS, BuildOptions
from edgekit.generate.host.pipeline.language.language_bundle import TRIED_FIRST
from edgekit.generate.host.weights.language.decoder_weights import BARS
from edgekit.generate.host.weights.language.decoder_weights import PRECISIONS as QUANTIZED
from edgekit.target.precisions import AUTO, TABLE, Precision, Stage, names_to_ask_for, precision_of, requested

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
    assert [name for name in PRECISIONS if BuildOptions(name).makes("searched")] == ["int8", "auto"]
    assert [name for name in PRECISIONS if BuildOptions(name).makes("quantized")] == ["fp8"]
    assert _made("weights", AUTO) == ["int8-weights", "int8-dynamic"]
    for name in ("int8-weights", "int8-dynamic", "palette6", "palette4"):
        assert _made("weights", name) == [name]
    for name in ("fp32", "fp16", "fp16-arithmetic", "bf16", "int8", "fp8"):
        assert _made("weights", name) == []
    for_size = [name for name in PRECISIONS if BuildOptions(name).for_size]
    assert for_size == ["int8-weights", "palette6", "palette4"]
    without_goal = [name for name in PRECISIONS if not BuildOptions(name).has_goal]
    assert without_goal == ["fp32", "fp16", "fp16-arithmetic", "bf16"]
    assert [row.name for row in TABLE if row.is_float] == ["fp32", "fp16"]
    assert [row.name for row in TABLE if row.is_narrow] == ["fp16-arithmetic", "bf16"]
    assert [row.name for row in TABLE if row.from_table] == ["palette6", "palette4"]
    assert [row.name for row in TABLE if row.rounds_inputs] == ["int8-dynamic"]
    assert (SNR_LIMITS_DB["fp32"], SNR_LIMITS_DB["fp16"], SNR_LIMITS_DB["int8"]) == (100.0, 45.0, 20.0)


def _made(stage: Stage, precision: str) -> list[str]:
    return [row.name for row in requested(precision) if row.stage == stage]


def test_what_language_models_are_built_in_is_what_it_was() -> None:
    assert {name: tuple(bar) for name, bar in BARS.items()} == {
        "fp32": (0.001, 60.0, False),
        "fp16": (0.005, 30.0, False),
        "int8": (0.01, 10.0, False),
        "int4": (0.02, 3.0, True),
    }
    assert list(BARS) == ["fp32", "fp16", "int8", "int4"]
    assert QUANTIZED == ("int8", "int4")
    assert {**{name: (name,) for name in BARS}, "auto": ("int4", "int8")} == TRIED_FIRST


def test_rows_are_sound() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert sorted(row.accuracy_rank for row in TABLE) == list(range(len(TABLE)))
    floats = {row.name for row in TABLE if row.is_float}
    assert {row.parent for row in TABLE if row.parent} <= floats
    assert {row.stage for row in TABLE if row.for_size or row.from_table or row.rounds_inputs} == {"weights"}


@pytest.mark.parametrize(
    ("name", "row"),
    [(row.name, row) for row in TABLE]
    + [(f"{row.name}-2", row) for row in TABLE]
    + [("int8-mixed-12", precision_of("int8-mixed"))],
)
def test_a_variant_s_precision_is_read(name: str, row: Precision) -> None:
    assert precision_of(name) is row


@pytest.mark.parametrize("name", ["int2", "int8-", "-2", "", "2"])
def test_a_precision_of_a_newer_edgekit_ranks_last(name: str) -> None:
    found = precision_of(name)
    assert (found.stage, found.element, found.is_float, found.is_narrow) == ("", "", False, False)
    assert found.accuracy_rank > max(row.accuracy_rank for row in TABLE)
    assert found.snr_limit_db == 100.0


def test_the_command_line_takes_them() -> None:
    flag = next(option for option in commands.commands["build"].params if option.name == "precision")
    assert isinstance(flag.type, click.Choice)
    assert tuple(flag.type.choices) == names_to_ask_for()
    assert names_to_ask_for()[0] == "fp32"
    assert set(names_to_ask_for()) == set(PRECISIONS) | {row.name for row in TABLE if row.stage == "language"}

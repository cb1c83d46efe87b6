"""Columns of chips and of engines outside of EdgeKit: what each is known to give, in chips/<target>.toml.

Their grids take minutes, so a test run takes a part of each (``sampled``). The whole, or some families of it:

    python -m tests.conformance.chips tflm [FAMILY...]

runs the cases and writes the file. As with ``expectations``, wrong answers and crashes are printed, and a
reason is written by hand under ``[wrong]``. An engine may end the process: cases run in children.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.system.formats.strict_tables import load_toml
from tests.conformance.expectations import PARTS, Expected, collected
from tests.conformance.grid import CASES, FAMILIES, Outcome, run_case
from tests.conformance.in_children import in_children

FOLDER = Path(__file__).with_name("chips")
ENDED = "it ends the process"


@dataclass(frozen=True)
class Chip:
    """One column.

    Attributes:
        families: Those that were run.
        expected: What their cases give; what it says of others means nothing.
    """

    families: tuple[str, ...]
    expected: Expected

    @property
    def keys(self) -> list[str]:
        return [key for key in CASES if _family(key) in self.families]


def columns() -> tuple[str, ...]:
    """The targets that have a file."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read_chip(column: str) -> Chip:
    """What a column is known to give; no family if it was never run.

    Raises:
        ValueError: its file is not TOML.
    """
    path = FOLDER / f"{column}.toml"
    table: dict[str, Any] = load_toml(path.read_text("utf-8"), path.name, ValueError) if path.exists() else {}
    expected = Expected(**{part: table.get(part, {}) for part in PARTS})
    return Chip(tuple(expected.passes), expected)


def write_chip(column: str, chip: Chip) -> None:
    lines = [f"# Written by `python -m tests.conformance.chips {column}`; what the parts mean is said there."]
    for part in PARTS:
        entries = getattr(chip.expected, part)
        kept = {key: value for key, value in entries.items() if _family(key) in chip.families}
        if kept:
            lines += ["", f"[{part}]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in kept.items())]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{column}.toml").write_text("\n".join(lines) + "\n", "utf-8")


def sampled(chip: Chip, one_of: int) -> list[str]:
    """One case of so many, by its name; the same in every run, and whatever cases are added."""
    return [key for key in chip.keys if zlib.crc32(key.encode()) % one_of == 0]


def outcomes(keys: Sequence[str], column: str, folder: Path) -> dict[str, Outcome | Exception]:
    """What cases give on a target; an engine that ends the process is wrong."""
    found = in_children(run_case, keys, column, folder)
    return {key: Outcome("wrong", ENDED) if outcome is None else outcome for key, outcome in found}


def _family(key: str) -> str:
    return key.partition("/")[0]


def main(column: str, families: Sequence[str] = ()) -> int:
    """Run a column, or some families of it, and write its file."""
    old = read_chip(column)
    if unknown := set(families) - FAMILIES.keys():
        print(f"no family is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = tuple(families) or tuple(FAMILIES)
    keys = [key for key in CASES if _family(key) in chosen]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEKIT_CACHE"] = folder
        found = outcomes(keys, column, Path(folder))
    expected, unlisted = collected(found, old.expected)
    for key, outcome in unlisted.items():
        print(f"{column}  {key}  {outcome!r}", file=sys.stderr)
    ran = tuple(family for family in FAMILIES if family in {*old.families, *chosen})
    passes = {family: count for family, count in expected.passes.items() if family in ran}
    write_chip(column, Chip(ran, Expected(passes, expected.refused, expected.wrong, expected.reasons)))
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

"""What the grid is known to give: tests/conformance/expected.toml, read and written.

    [reference.fails]                  ONNX's own cases that ONNX Runtime does not answer as they expect
    [tflite.passes]                    cases of each family that pass; a lower count fails
    [tflite.refused]                   case = code of its finding; one that is not here may not be refused
    [tflite.reasons]                   case = what its refusal says, for docs/ops.md
    [openvino.wrong]                   case = why the engine itself is wrong; verification rejects these, and
                                       each is asserted to be still wrong, so that the list can only shrink

After an intended change: ``python -m tests.conformance.expectations`` runs the grid and writes the file anew;
with words behind it only the cases whose names hold one of them, and what the file says of others stays. It
never takes a wrong answer or a crash by itself: those are printed, and a reason is written by hand.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.system.formats.strict_tables import load_toml
from tests.conformance.grid import CASES, FAMILIES, FRONT, TARGETS, Outcome, run_case
from tests.conformance.onnx_nodes import reference_fails

FILE = Path(__file__).with_name("expected.toml")
COLUMNS = (FRONT, *TARGETS)
PARTS = ("passes", "refused", "wrong", "reasons")


@dataclass(frozen=True)
class Expected:
    """What one column of the grid is known to give."""

    passes: Mapping[str, int]
    refused: Mapping[str, str]
    wrong: Mapping[str, str]
    reasons: Mapping[str, str] = field(default_factory=dict)

    def of(self, key: str) -> Outcome:
        if key in self.wrong:
            return Outcome("wrong", self.wrong[key])
        if key in self.refused:
            return Outcome("refused", self.refused[key])
        return Outcome("pass")


def read_expected() -> dict[str, Expected]:
    """Column -> what it is known to give.

    Raises:
        ValueError: the file is not TOML.
    """
    table: dict[str, Any] = load_toml(FILE.read_text("utf-8"), FILE.name, ValueError) if FILE.exists() else {}
    return {
        column: Expected(**{part: table.get(column, {}).get(part, {}) for part in PARTS})
        for column in COLUMNS
    }


def write_expected(expected: Mapping[str, Expected], fails: Mapping[str, str] | None = None) -> None:
    """``fails``: what the reference does not answer as expected; None keeps what the file has."""
    lines = ["# Written by `python -m tests.conformance.expectations`; what the parts mean is said there."]
    if fails is None and FILE.exists():
        fails = load_toml(FILE.read_text("utf-8"), FILE.name, ValueError).get("reference", {}).get("fails")
    if fails:
        lines += ["", "[reference.fails]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in fails.items())]
    for column, one in expected.items():
        for part in PARTS:
            entries = getattr(one, part)
            if entries:
                lines += ["", f"[{json.dumps(column)}.{part}]"]
                lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in entries.items()]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")


def collected(
    found: Mapping[str, Outcome | Exception], old: Expected
) -> tuple[Expected, dict[str, Outcome | Exception]]:
    """What a column gives now, and its crashes and wrong answers that ``old`` does not list.

    Args:
        found: Case -> outcome, or what it raised. A case that is not here gives what ``old`` says.
        old: What the column was known to give.
    """
    passes, refused, wrong, reasons, unlisted = dict.fromkeys(FAMILIES, 0), {}, {}, {}, {}
    for key in CASES:
        outcome = found.get(key, old.of(key))
        if isinstance(outcome, Outcome) and outcome.kind == "pass":
            passes[key.partition("/")[0]] += 1
        elif isinstance(outcome, Outcome) and outcome.kind == "refused":
            refused[key] = outcome.detail
            reasons[key] = outcome.why or old.reasons.get(key, "")
        elif key in old.wrong:
            wrong[key] = old.wrong[key]
        else:
            unlisted[key] = outcome
    return Expected(passes, refused, wrong, reasons), unlisted


def main(words: Sequence[str] = ()) -> int:
    """Run the grid on the installed targets, or the cases whose keys hold one of the words, and write the
    file."""
    keys = [key for key in CASES if not words or any(word in key for word in words)]
    old, new = read_expected(), {}
    troubles = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEKIT_CACHE"] = folder
        outcomes: dict[str, dict[str, Outcome | Exception]] = {column: {} for column in COLUMNS}
        for key in keys:
            for column in COLUMNS:
                try:
                    outcomes[column][key] = run_case(key, column, Path(folder))
                except Exception as crash:  # the grid goes on; the test of this case fails with it
                    outcomes[column][key] = crash
    for column, found in outcomes.items():
        new[column], unlisted = collected(found, old[column])
        for key, outcome in unlisted.items():
            print(f"{column}  {key}  {outcome!r}", file=sys.stderr)
        troubles += len(unlisted)
    write_expected(new, None if words else reference_fails())
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

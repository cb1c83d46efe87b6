"""The file of results: the draw and a line for each cell, so that a run resumes and a change reads well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.scoreboard.makers import MAKERS
from tests.benchmarks.scoreboard.networks import NETWORKS

Cell = dict[str, Any]
Results = dict[str, Cell]
DRAW = "drawn"
"""Key of the draw: its seed, date and networks. Every other key is ``network.engine``."""


def load_results(path: Path) -> Results:
    """Return the results by key, or nothing if the file does not exist."""
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def cells_of(results: Results) -> list[Cell]:
    """Return the cells in the order of the registry."""
    order = {name: number for number, name in enumerate(NETWORKS)}
    engines = {name: number for number, name in enumerate(MAKERS)}
    cells = [cell for key, cell in results.items() if key != DRAW]
    return sorted(cells, key=lambda cell: (order.get(cell["network"], 99), engines.get(cell["engine"], 9)))


def key_of(network: str, engine: str) -> str:
    return f"{network}.{engine}"


def save(result: Cell, path: Path, key: str = "") -> None:
    """Add or replace one result, and write the file whole or not at all."""
    results = load_results(path) | {key or key_of(result["network"], result["engine"]): result}
    write_results(results, path)


def write_results(results: Results, path: Path) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(results.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    part.replace(path)

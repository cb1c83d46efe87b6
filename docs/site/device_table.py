"""Table of the devices in ``docs/devices``: ``python -m docs.site.device_table`` checks the files and writes
the table into the page.

A file is what ``edgekit bench --json`` or ``edgekit devices --browser --json`` printed. Its figures are its
sender's. Refused is what contradicts the schema, itself, another file or arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from edgekit.compiler.bench.history import TIME_FORMAT
from edgekit.system.formats import strict_json
from edgekit.system.formats.plain_text import milliseconds

FOLDER = Path(__file__).resolve().parents[1] / "devices"
PAGE, SCHEMA = "table.md", "schema.json"
BEGIN, END = "<!-- table of devices -->\n", "<!-- end of the table -->\n"
FILE_BYTES = 65_536
SOURCE = "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc"
"""sha256 of the one model that all devices run: the sample's face detector, CenterFace."""
INPUTS = {"input.1": [1, 3, 480, 640]}
MACS = 1.85e9
"""Multiplications of a run: those of its convolutions."""
THREAD_MACS_PER_SECOND, GPU_MACS_PER_SECOND = 4e12, 1e15
"""No thread computes more: Intel's AMX does 1024 products of bfloat16 in a cycle."""
FIRST = "2026-11-01T00:00:00Z"
"""No earlier version measured."""


class RefusedFileError(ValueError):
    """A file that the table does not take; its text names the file and the reason."""


def read_file(path: Path) -> dict[str, Any]:
    """Read and check a device's file.

    Raises:
        RefusedFileError: it is malformed, of another model, or impossible.
    """
    schema = json.loads((FOLDER / SCHEMA).read_text("utf-8"))
    try:
        device: Any = strict_json.decode(path.read_bytes(), path.name, FILE_BYTES)
    except strict_json.JsonError as problem:
        raise RefusedFileError(str(problem)) from None
    for error in Draft202012Validator(schema).iter_errors(device):
        raise RefusedFileError(f"{path.name}, {error.json_path}: {error.message[:200]}")
    if contradiction := _contradiction(device):
        raise RefusedFileError(f"{path.name}: {contradiction}")
    return dict(device)


def _contradiction(device: dict[str, Any]) -> str:
    now = datetime.now(timezone.utc).strftime(TIME_FORMAT)
    try:
        datetime.strptime(device["time"], TIME_FORMAT)
    except ValueError:
        return f"{device['time']} is not a time"
    if not FIRST <= device["time"] <= now:
        return f"it was measured {device['time']}, which is in the future or before the first version"
    if (device["bundle"]["source"], device["bundle"]["inputs"]) != (SOURCE, INPUTS):
        return "its bundle is not that of samples/camera/demo.py --once, which all devices run"
    rows = timed(device)
    if not rows:
        return "no variant has a time"
    names = [(row["variant"], row["engine"], row["threads"]) for row in rows]
    if len(set(names)) < len(names):
        return "it has a variant, engine and number of threads twice"
    in_browser = device["machine"]["machine"] == "browser"
    for row in rows:
        by_gpu = row["engine"].endswith(", WebGPU")
        if in_browser != (by_gpu or row["engine"].endswith(", WebAssembly")):
            return f"{row['engine']} does not run on {device['machine']['machine']}"
        if not row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]:
            return f"{row['variant']}: p50, p95 and p99 are not in order"
        most = GPU_MACS_PER_SECOND if by_gpu else THREAD_MACS_PER_SECOND * row["threads"]
        if MACS / (row["p50_ms"] / 1e3) > most:
            return f"{row['variant']}: nothing computes {MACS:g} products in {row['p50_ms']:g} ms"
    return ""


def timed(device: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a device's rows that have times."""
    return [row for row in device["results"] if "p50_ms" in row]


def read_folder(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Read all files of a folder, by name.

    Raises:
        RefusedFileError: a file is refused, or has the times of another one.
    """
    devices: list[dict[str, Any]] = []
    seen: dict[tuple[float, ...], str] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == SCHEMA:
            continue
        device = read_file(path)
        for row in timed(device):
            times = (row["p50_ms"], row["p95_ms"], row["p99_ms"])
            if seen.setdefault(times, path.name) != path.name:
                raise RefusedFileError(f"{path.name}: {row['variant']} has the times of {seen[times]}")
        devices.append({**device, "file": path.name})
    return devices


def table(devices: Sequence[dict[str, Any]]) -> str:
    """Return the table, a row for each timed variant."""
    lines = [
        "| device | system | variant, engine | threads | p50 | p95 | first | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for device in devices:
        machine, name = device["machine"], f"[{device['machine']['cpu']}]({device['file']})"
        by = "its browser" if machine["machine"] == "browser" else machine["machine"]
        note = f"; {device['note']}" if "note" in device else ""
        for row in timed(device):
            times = " | ".join(milliseconds(row[key]) for key in ("p50_ms", "p95_ms", "first_ms"))
            lines.append(
                f"| {name} ({by}{note}) | {machine['system']} | {row['variant']}, {row['engine']} "
                f"| {row['threads']} | {times} | {device['time'][:10]}, EdgeKit {device['edgekit']} |"
            )
    return "\n".join(lines) + "\n"


def page(text: str, devices: Sequence[dict[str, Any]]) -> str:
    """Return the page with its table replaced."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table(devices) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    try:
        path = FOLDER / PAGE
        path.write_text(page(path.read_text("utf-8"), read_folder()), "utf-8")
    except RefusedFileError as problem:
        raise SystemExit(f"error: {problem}") from None

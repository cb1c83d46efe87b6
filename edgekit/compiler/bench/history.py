"""History of ``edgekit bench``: a file of JSON lines, one for each run (https://jsonlines.org/).

    {"time": "2026-11-22T20:10:00Z", "edgekit": "0.1.0", "bundle": {"name", "digest", "source", "inputs"},
     "machine": {"cpu", "isa", "machine", "system"}, "results": [what --json gives for a variant, ...]}

``--json`` of ``edgekit bench`` and of ``edgekit devices --browser`` has the same fields.

A line is written at once, under a lock, and removed if it can't be written completely.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.system.atomic_files import locked
from edgekit.system.formats.strict_json import brief, decode, encode
from edgekit.system.regular_file import open_regular
from edgekit.tensor_spec import Json

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
HISTORY_LIMIT_BYTES = 64 << 20
LINE_LIMIT_BYTES = 1 << 20
LOCK_SECONDS = 10.0


class Run(NamedTuple):
    """One run of ``edgekit bench``.

    Attributes:
        time: Its end, in UTC, as TIME_FORMAT has it.
        edgekit: The version that measured.
        bundle, digest: File name of the bundle, and the sha256 of its manifest.
        cpu, isa, machine: The processor's name, instruction sets and kind.
        results: A mapping for each variant, see :func:`edgekit.compiler.bench.bench.bench`.
        source: sha256 of the model that the bundle was built from; "" in older lines.
        inputs: Name -> shape of the model's inputs.
        system: Operating system, and the browser if one measured.
    """

    time: str
    edgekit: str
    bundle: str
    digest: str
    cpu: str
    isa: tuple[str, ...]
    machine: str
    results: tuple[Mapping[str, Any], ...]
    source: str = ""
    inputs: Mapping[str, Json] = {}
    system: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "edgekit": self.edgekit,
            "bundle": {
                "name": self.bundle,
                "digest": self.digest,
                "source": self.source,
                "inputs": dict(self.inputs),
            },
            "machine": {
                "cpu": self.cpu,
                "isa": list(self.isa),
                "machine": self.machine,
                "system": self.system,
            },
            "results": [dict(result) for result in self.results],
        }


def bundle_facts(bundle: Bundle) -> dict[str, Any]:
    """Return ``{name, digest, source, inputs}`` of a bundle, as :class:`Run` has them."""
    inputs = {spec.name: list(spec.shape) for spec in bundle.inputs}
    source = bundle.manifest["source"]["sha256"]
    return {"name": bundle.name, "digest": bundle.digest, "source": source, "inputs": inputs}


def run_now(
    bundle: Mapping[str, Any], results: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]
) -> Run:
    """Create the record of a run that ends now.

    Args:
        bundle: The result of :func:`bundle_facts`.
        results: Results in the format of ``edgekit bench --json``.
        machine: ``{cpu, isa, machine, system}`` of this machine or a device.

    Raises:
        KeyError, TypeError, ValueError: the results or the machine lack an entry; a device's response is
            not trusted.
    """
    facts = {name: machine[name] for name in ("cpu", "machine", "system")}
    return _run(
        {
            "time": datetime.now(timezone.utc).strftime(TIME_FORMAT),
            "edgekit": __version__,
            "bundle": dict(bundle),
            "machine": {**facts, "isa": list(machine["isa"])},
            "results": [dict(result) for result in results],
        }
    )


def read_history(path: Path) -> list[Run]:
    """Read the runs of a history in the order of the file; none if the file does not exist.

    Raises:
        UsageError: the file can't be read, or a line is not a valid run; the text names the line.
    """
    try:
        with open_regular(path, follow_links=True) as file:
            content = file.read(HISTORY_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UsageError(f"{path} can't be read: {problem.strerror or problem}") from None
    if len(content) > HISTORY_LIMIT_BYTES:
        raise UsageError(f"{path} is larger than {HISTORY_LIMIT_BYTES >> 20} MB; start another history file")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    runs = []
    for number, line in enumerate(lines, 1):
        try:
            runs.append(_run(decode(line, "the line", LINE_LIMIT_BYTES)))
        except ValueError as problem:
            raise UsageError(
                f"{path}, line {number} is not a run of edgekit bench: {problem}\n"
                "  remove this line, or use another file for --history"
            ) from None
    return runs


def append_run(path: Path, run: Run) -> None:
    """Add a run to a history, as one whole line or not at all. The file is created if there is none.

    Raises:
        UsageError: it can't be written; it is as it was.
    """
    line = encode(run.as_json()) + b"\n"
    path = path.resolve()
    try:
        with locked(path, LOCK_SECONDS), open(path, "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                line = line if file.read(1) == b"\n" else b"\n" + line
            try:
                if file.write(line) != len(line):
                    raise OSError(0, "no room for a whole line")
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)
                raise
    except OSError as problem:
        raise UsageError(f"can't write {path}: {problem.strerror or problem}; choose another file") from None


def _run(value: Json) -> Run:
    whole = _object(value, "it")
    bundle, machine = _object(whole.get("bundle"), "bundle"), _object(whole.get("machine"), "machine")
    time = _text(whole, "time")
    try:
        datetime.strptime(time, TIME_FORMAT)
    except ValueError:
        raise ValueError(f"time is {brief(time)}; it must be like 2026-11-22T20:10:00Z") from None
    isa, results = machine.get("isa"), whole.get("results")
    if not isinstance(isa, list) or not all(isinstance(name, str) for name in isa):
        raise ValueError(f"isa is {brief(isa)}; it must be a list of names")
    if not isinstance(results, list):
        raise ValueError(f"results is {brief(results)}; it must be a list")
    for result in results:
        _check_result(_object(result, "a result"))
    return Run(
        time,
        _text(whole, "edgekit"),
        _text(bundle, "name"),
        _text(bundle, "digest"),
        _text(machine, "cpu"),
        tuple(isa),
        _text(machine, "machine"),
        tuple(results),
        _text({"source": "", **bundle}, "source"),
        _object(bundle.get("inputs", {}), "inputs"),
        _text({"system": "", **machine}, "system"),
    )


def _check_result(result: Mapping[str, Json]) -> None:
    _text(result, "variant")
    for key in ("threads", "p50_ms", "p95_ms", "p99_ms", "load_ms", "first_ms"):
        number = result.get(key)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
            raise ValueError(f"{key} is {brief(number)}; it must be a number of 0 or more")


def _object(value: Json, description: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{description} is {brief(value)}; it must be an object")
    return value


def _text(value: Mapping[str, Json], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise ValueError(f"{key} is {brief(text)}; it must be a string")
    return text

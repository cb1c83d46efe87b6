"""Messages from the child to its parent: one strict JSON object per line, never a pickle.

A child that was taken over by a model can write anything here, so every message is checked. Lines and their
number are bounded, errors are limited to the classes listed here, and texts are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar, cast

from edgekit import errors
from edgekit.diagnostics import Finding
from edgekit.errors import EdgeKitError, MissingDependency, UnsupportedError, printable
from edgekit.system.formats import strict_json
from edgekit.system.formats.declared_json import decode
from edgekit.system.formats.json_schema import ManifestError
from edgekit.system.formats.strict_json import TEXT_LIMIT_CHARS
from edgekit.system.progress import Stage
from edgekit.tensor_spec import Json

T = TypeVar("T")
LINE_LIMIT_BYTES = 8 << 20
DETAIL_LIMIT_CHARS = 2000
"""Maximum length of a text of a stage."""
FINDINGS_A_LINE = 2000
FINDINGS_LIMIT = 1_000_000
"""A model has at most 200,000 nodes; some targets have several findings of one."""
_CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, EdgeKitError)
}
_FIELDS = tuple(field.name for field in fields(Finding))
_SEVERITIES = ("error", "warning", "note")


class Broken(Exception):  # noqa: N818
    """A line that the child's program would not have written."""


def as_line(message: dict[str, Json]) -> bytes:
    return strict_json.encode(message) + b"\n"


def parse_line(line: bytes) -> dict[str, Json]:
    """Parse a line as a message. Raises Broken."""
    try:
        message = strict_json.decode(line, "message", LINE_LIMIT_BYTES)
    except ValueError as problem:
        raise Broken(str(problem)) from None
    if not isinstance(message, dict):
        raise Broken("a message must be an object")
    return message


def findings_lines(findings: Sequence[Finding]) -> list[bytes]:
    """Return findings as lines, several per line."""
    rows: list[Json] = [[_bounded(text) for text in finding.as_json().values()] for finding in findings]
    starts = range(0, len(rows), FINDINGS_A_LINE)
    return [as_line({"findings": rows[start : start + FINDINGS_A_LINE]}) for start in starts]


def parse_findings(rows: Json) -> list[Finding]:
    if not isinstance(rows, list):
        raise Broken("findings must be a list")
    findings = []
    for row in rows:
        if not isinstance(row, list) or len(row) != len(_FIELDS) or not _all_texts(row):
            raise Broken("a finding must be a list of strings")
        values = {name: printable(str(text)) for name, text in zip(_FIELDS, row, strict=True)}
        if values["severity"] not in _SEVERITIES:
            raise Broken("a finding's severity is unknown")
        findings.append(Finding(**values))  # type: ignore[arg-type]
    return findings


def stage_line(kind: str, stage: Stage) -> bytes:
    """Return a progress event as a line: of a ``stage``, or of a ``step`` within one."""
    fields = [value[:DETAIL_LIMIT_CHARS] if isinstance(value, str) else value for value in stage]
    return as_line({kind: fields})


def parse_stage(message: Json) -> Stage:
    """Parse a progress event. Raises Broken."""
    stage = _decoded(Stage, message, "a stage")
    if any(isinstance(value, int | float) and not 0 <= value < 1 << 53 for value in stage):
        raise Broken("a number of a stage is out of range")
    fields: list[Any] = [value[:DETAIL_LIMIT_CHARS] if isinstance(value, str) else value for value in stage]
    return Stage(*fields)


def error_lines(problem: EdgeKitError | OSError) -> list[bytes]:
    """Return an error as lines; its findings come first."""
    if not isinstance(problem, EdgeKitError):
        number = problem.errno if isinstance(problem.errno, int) else None
        name = problem.filename if isinstance(problem.filename, str) else ""
        text = str(problem.strerror or problem)
        return [as_line({"system": [number, _bounded(text), _bounded(name)]})]
    kind = next(base.__name__ for base in type(problem).__mro__ if _CLASSES.get(base.__name__) is base)
    if kind == "EngineNotReady":  # its build is of the process that it was raised in
        kind = "EngineError"
    about: dict[str, Json] = {"kind": kind, "text": _bounded(str(problem)), "blame": problem.blame}
    if isinstance(problem, MissingDependency):
        parts = (problem.name, problem.needed_for, problem.install, problem.for_bundles)
        about["missing"] = [_bounded(text) for text in parts]
    first = findings_lines(problem.findings) if isinstance(problem, UnsupportedError) else []
    return [*first, as_line({"error": about})]


def parse_error(about: Json, findings: list[Finding]) -> EdgeKitError:
    """Parse the error of a line, as it was raised in the child. Raises Broken."""
    if not isinstance(about, dict) or not _all_texts([about.get(key) for key in ("kind", "text", "blame")]):
        raise Broken("an error must have a kind, a text and a cause")
    kind = _CLASSES.get(str(about["kind"]))
    if kind is None:
        raise Broken("an error of an unknown class")
    problem: EdgeKitError = kind.__new__(kind)
    EdgeKitError.__init__(problem, str(about["text"]))  # the others make the text of their arguments
    if about["blame"]:
        problem.blame = printable(str(about["blame"]))
    if isinstance(problem, UnsupportedError):
        problem.findings = list[Any](findings)
    if isinstance(problem, MissingDependency):
        missing = _decoded(tuple[str, str, str, str], about.get("missing"), "a missing package")
        problem.name, problem.needed_for, problem.install, problem.for_bundles = missing
    return problem


def parse_system_error(message: Json) -> OSError:
    """Parse an error of the system. Raises Broken."""
    number, text, name = _decoded(tuple[int | None, str, str], message, "a system error")
    if number is None:
        return OSError(text)
    return OSError(number, text, name) if name else OSError(number, text)


def _decoded(kind: type[T], message: Json, description: str) -> T:
    try:
        return cast(T, decode(kind, message, description))
    except ManifestError as problem:
        raise Broken(str(problem)) from None


def _all_texts(values: Sequence[Json]) -> bool:
    return all(isinstance(value, str) for value in values)


def _bounded(text: str) -> str:
    """Return a text that fits a message: strict JSON has a limit, and file names may not be UTF-8."""
    text = printable(text)
    return text if len(text) < TEXT_LIMIT_CHARS // 4 else f"{text[: TEXT_LIMIT_CHARS // 4]}..."

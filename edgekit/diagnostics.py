"""Findings of a target on a model before compiling it: one per node, with a stable code.

EK1001  error    the target has no form for this op
EK1002  error    the op is known, but not in this form (attribute, shape, constant that is not one)
EK1003  error    a dimension is dynamic
EK1004  error    an element type the target does not have
EK1005  error    the model can't be built at all: it is not valid with the shapes that were suggested for its
                 dynamic dimensions, or ONNX Runtime can't run it as the reference
EK1099  error    the check met a bug in EdgeKit or in the target; other targets are checked
EK1101  warning  the op leaves the engine's fast path
EK1102  warning  data is moved that a better layout would not move
EK1103  note     the artifact needs a newer system than the profile names
EK1104  note     the target was not checked: its compiler's package is not installed
EK1105  warning  the node is computed in float between integers
EK1106  warning  integers are given another scale by an operator of its own
EK1107  note     a dimension that the model leaves open was set, for all targets
EK1108  warning  float64 is computed in float32
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Literal, Protocol

from edgekit.errors import UnsupportedError, printable

NOT_CHECKED = "EK1104"
ASSUMED_SHAPES = "EK1107"
FAULT = "EK1099"
DYNAMIC = "EK1003"
REFUSED = "EK1005"
NAMED = 3
"""So many nodes of which the same is said are named."""
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing a target says about one node or input.

    Attributes:
        code: Stable identifier, e.g. ``EK1001`` (table above).
        severity: ``error`` means that the model cannot be built for the target.
        target: The target or profile that says so; empty for what holds for all.
        node: Name of the node or input, as in the source model.
        op: ONNX operator, with its opset where that matters; empty for an input.
        message: Problem and its reason.
        fix: Action that solves it; empty if there is none.
        avoided_by: Shapes with which it does not occur, e.g. ``x=1x3x224x224``, for a model whose dynamic
            dimensions were only suggested; empty if it occurs with all shapes that were checked.
    """

    code: str
    severity: Severity
    target: str
    node: str
    op: str
    message: str
    fix: str = ""
    avoided_by: str = ""

    def as_json(self) -> dict[str, str]:
        return {name: printable(text) for name, text in asdict(self).items()}


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that keep a model from being built."""
    return [finding for finding in findings if finding.severity == "error"]


def as_annotations(file: str, findings: Iterable[Finding]) -> list[str]:
    """Return one annotation of GitHub Actions per finding, shown at the file of a pull request.

    Source of the format and of its escapes: github.com/actions/toolkit, packages/core/src/command.ts.

    >>> finding = Finding("EK1001", "error", "tflite", "/lstm", "LSTM", "no form, 100%", "use ort")
    >>> as_annotations("m.onnx", [finding])
    ['::error file=m.onnx,title=EK1001 tflite%3A /lstm (LSTM)::no form, 100%25; use ort']
    """
    kinds, lines = {"note": "notice"}, []
    for f in findings:
        title = f"{f.code} {f.target}{': ' if f.target else ''}{f.node}{f' ({f.op})' if f.op else ''}"
        text = _escaped(printable("; ".join(filter(None, (f.message, f.fix)))))
        properties = [
            f"{name}={_escaped(printable(value)).replace(':', '%3A').replace(',', '%2C')}"
            for name, value in (("file", file), ("title", title))
        ]
        lines.append(f"::{kinds.get(f.severity, f.severity)} {','.join(properties)}::{text}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def as_lines(findings: Sequence[Finding], indent: str = "  ") -> list[str]:
    """Return one line per finding with aligned columns, for the terminal and for error texts.

    Findings that say the same of many nodes are grouped: the first NAMED are listed, the others counted.

    >>> finding = Finding("EK1001", "error", "tflite", "/lstm", "LSTM", "no form", "use ort")
    >>> print(as_lines([finding])[0])
      EK1001  /lstm  LSTM  no form; use ort
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    for f in findings:
        avoided = f.avoided_by and f"not with {f.avoided_by}"
        groups.setdefault((f.code, f.op, "; ".join(filter(None, [f.message, f.fix, avoided]))), []).append(
            f.node
        )
    rows = []
    for (code, op, story), nodes in groups.items():
        rows += [(code, node, op, story) for node in nodes[:NAMED]]
        if nodes[NAMED:]:
            rows.append((code, f"and {len(nodes) - NAMED} more", op, "the same; --json has all"))
    node_width = min(40, max((len(node) for _, node, _, _ in rows), default=0))
    op_width = max((len(op) for _, _, op, _ in rows), default=0)
    return [
        printable(f"{indent}{code}  {node:{node_width}}  {op:{op_width}}  {story}")
        for code, node, op, story in rows
    ]


def cannot_run(name: str, findings: Sequence[Finding]) -> UnsupportedError:
    """Return the error of a target or profile that refuses a model, with all that it found."""
    return UnsupportedError("\n".join([f"{name} can't run the model", *as_lines(findings)]), findings)


class ModelName(Protocol):
    """Path of a model, or its address: what a command prints of it."""

    @property
    def name(self) -> str: ...
    @property
    def stem(self) -> str: ...


def check_text(
    model: ModelName,
    targets: Sequence[str],
    findings: Sequence[Finding],
    shapes: Mapping[str, Sequence[int]],
    trust_pickle: bool = False,
) -> str:
    """Format the output of ``edgekit check``: the answer, each target's findings, the next step.

    Args:
        model: The model's file.
        targets: The targets and profiles to check.
        findings: Findings of those targets.
        shapes: Static shapes from the user, by input name.
        trust_pickle: Whether the model was opened with ``--trust-pickle``; the next step then has it too.
    """
    refusing = {f.target for f in errors(findings)}
    unchecked = {f.target for f in findings if f.code == NOT_CHECKED}
    targets = list(dict.fromkeys(targets))
    can = [name for name in targets if name not in refusing | unchecked and not _is_refused(findings)]
    cannot = ", ".join(name for name in targets if name in refusing)
    dynamic_fixes = [f.fix for f in findings if f.code == DYNAMIC and not f.target]
    model_text, with_them = model.name, ""
    lines = []
    if dynamic_fixes:
        lines = [f"  {model.name} can't be built until its shapes are given", *_for_all(findings), ""]
        model_text, with_them = "it", "with them, "
    elif _is_refused(findings):
        lines, cannot = [f"  {model.name} can't be built", *_for_all(findings)], ""
    lines += [f"  {with_them}{model_text} can't be built for {cannot}"] if cannot else []
    if can:
        lines.append(f"  {with_them}{model_text} can be built for {', '.join(can)}")
    lines += [printable(f"  note: {f.message}") for f in findings if not f.target and f.severity == "note"]
    named = dict.fromkeys(f.target for f in errors(findings) if f.target)
    for name in dict.fromkeys([*named, *(f.target for f in findings if f.target)]):
        target_findings = [f for f in findings if f.target == name]
        lines += ["", f"  {name}", *as_lines(target_findings, indent="    ")]
    if can:
        flags = [*(["--trust-pickle"] if trust_pickle else []), *(f"-t {name}" for name in can)]
        fixed = [f"{name}{'=' if name else ''}{'x'.join(map(str, shape))}" for name, shape in shapes.items()]
        flags += [*(f"--shape {quote(fixed_shape)}" for fixed_shape in fixed), *dynamic_fixes]
        output = quote(f"{model.stem}.edgekit")
        lines += ["", f"  next: edgekit build {quote(str(model))} {' '.join(flags)} -o {output}"]
    return "\n".join(lines)


def _is_refused(findings: Sequence[Finding]) -> bool:
    """Return whether no target can have the model, whatever its shapes are."""
    return any(f.code == REFUSED for f in findings)


def _for_all(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the errors that hold for all targets."""
    return as_lines([f for f in errors(findings) if not f.target], indent="    ")


class Inexpressible(Exception):  # noqa: N818  (says what it is; it never reaches the user)
    """A lowering has no form for this node as it stands.

    ``OpTable.lower`` turns it into a finding of the node it was raised for, and goes on with the next.

    Args:
        reason: Reason, e.g. "pads are negative".
        fix: Action that solves it.
        code: Finding code (edgekit/diagnostics.py).
    """

    def __init__(self, reason: str, fix: str = "", code: str = "EK1002") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.code = code

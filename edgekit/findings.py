"""What a target says about a model before compiling it: one finding per node, with a stable code.

EK1001  error    the target has no form for this op
EK1002  error    the op is known, but not in this form (attribute, shape, constant that is not one)
EK1003  error    a dimension is dynamic
EK1004  error    an element type the target does not have
EK1101  warning  the op leaves the engine's fast path
EK1102  warning  data is moved that a better layout would not move
EK1103  note     the artifact needs a newer system than the profile names
EK1104  note     the target was not checked: its compiler's package is not installed
EK1103  warning  the node is computed in float between integers
EK1104  warning  integers are given another scale by an operator of its own
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing a target says about one node or input.

    Attributes:
        code: Stable identifier, e.g. ``EK1001`` (table above).
        severity: ``error`` means that the model cannot be built for the target.
        target: The target or profile that says so.
        node: Name of the node or input, as in the source model.
        op: ONNX operator, with its opset where that matters; empty for an input.
        message: What does not fit and why.
        fix: What the user can do about it; empty when there is nothing.
    """

    code: str
    severity: Severity
    target: str
    node: str
    op: str
    message: str
    fix: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that keep a model from being built."""
    return [finding for finding in findings if finding.severity == "error"]


def as_lines(findings: Sequence[Finding], indent: str = "  ") -> list[str]:
    """One line a finding, columns aligned, for the terminal and for error texts.

    >>> finding = Finding("EK1001", "error", "tflite", "/lstm", "LSTM", "no form", "use ort")
    >>> print(as_lines([finding])[0])
      EK1001  /lstm  LSTM  no form; use ort
    """
    if not findings:
        return []
    node_width = min(40, max(len(f.node) for f in findings))
    op_width = max(len(f.op) for f in findings)
    lines = []
    for f in findings:
        story = f"{f.message}; {f.fix}" if f.fix else f.message
        lines.append(f"{indent}{f.code}  {f.node:{node_width}}  {f.op:{op_width}}  {story}")
    return lines

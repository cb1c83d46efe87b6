"""Rules that keep an operator off the Neural Engine, as data, each with its source and confidence.

Apple documents little of it, and says to measure on the device. Confidence:

    A   Apple's documentation or engineers
    B   messages of Apple's compiler, or measurements by several third parties
    C   one third party

No rule says that an operator will run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

PERFORMANCE = "https://machinelearning.apple.com/research/neural-engine-transformers"
ISSUES = "https://github.com/apple/coremltools/issues/"
GUIDE = "https://ane-guide.readthedocs.io/en/latest/part-1-machine/04-capability-surface.html"
TYPED_EXECUTION = "https://apple.github.io/coremltools/docs-guides/source/typed-execution.html"
COMPUTES_IN_FLOAT32 = "it computes in float32, and the Neural Engine in float16 and int8"
SAYS = {
    "A": "Apple says so",
    "B": "Apple's compiler or several who measured say so",
    "C": "one who measured says so",
}
"""A confidence in words."""
Verdict = Literal["not", "at risk"]


@dataclass(frozen=True)
class Rule:
    """Known limitation of the Neural Engine.

    Attributes:
        verdict: ``not`` eligible, or ``at risk``.
        confidence: A, B or C, as above.
    """

    verdict: Verdict
    confidence: Literal["A", "B", "C"]
    explanation: str
    source: str
    applies: Callable[[Any], bool]

    @property
    def text(self) -> str:
        """Return the text of a finding."""
        placement = "off the Neural Engine" if self.verdict == "not" else "perhaps off the Neural Engine"
        return f"{placement}: {self.explanation} ({SAYS[self.confidence]}, {self.source})"


def _shape(op: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in getattr(op.outputs[0], "shape", ()) or ())


def _dtype(op: Any) -> str:
    from coremltools.converters.mil.mil import types

    return str(types.builtin_to_string(op.outputs[0].dtype))


def _named(*kinds: str) -> Callable[[Any], bool]:
    names = frozenset(kinds)
    return lambda op: op.op_type in names


def _integers(op: Any) -> bool:
    return _dtype(op) == "int32" and op.op_type != "cast"


def _constant(op: Any, name: str) -> Any:
    operand = op.inputs.get(name)
    return None if operand is None else operand.val


def _narrow_rows(op: Any) -> bool:
    shape = _shape(op)
    return len(shape) == 4 and shape[-1] == 1 and shape[-2] > 1 and _dtype(op) == "fp16"


def _channel_scales(op: Any) -> bool:
    return op.op_type in ("quantize", "dequantize") and "axis" in op.inputs and op.inputs["axis"] is not None


def _blocks(op: Any) -> bool:
    """Check whether a weight has more scales than one for each output channel (axis 0)."""
    for operand in op.inputs.values():
        maker = getattr(operand, "op", None)
        if maker is not None and maker.op_type == "constexpr_blockwise_shift_scale":
            return any(n > 1 for n in maker.scale.shape[1:])
    return False


def _zero_point(op: Any) -> bool:
    return op.op_type in ("quantize", "dequantize") and bool(
        op.inputs.get("zero_point") is not None and _constant(op, "zero_point").any()
    )


RULES = (
    Rule("not", "A", "recurrent layers run elsewhere", ISSUES + "1780", _named("lstm", "gru", "rnn")),
    Rule("not", "A", COMPUTES_IN_FLOAT32, TYPED_EXECUTION,
         lambda op: _dtype(op) == "fp32" and op.op_type != "cast"),
    Rule("not", "B", "an axis is longer than 16384", ISSUES + "1003",
         lambda op: any(n > 16384 for n in _shape(op))),
    Rule("not", "C", "it has no hardware path", GUIDE,
         _named("reduce_prod", "scatter_nd", "scatter_along_axis")),
    Rule("not", "C", "three-dimensional convolutions fail to compile for it", GUIDE,
         lambda op: op.op_type.startswith("conv") and len(_shape(op)) == 5),
    Rule("not", "B", "a scale for each channel of an activation", ISSUES + "2510", _channel_scales),
    Rule("not", "B", "a scale for each block of a weight", ISSUES + "2510", _blocks),
    Rule("at risk", "B", "picking by index has run on the CPU", ISSUES + "1103",
         _named("gather", "gather_nd", "gather_along_axis", "topk", "argsort", "non_zero", "cumsum")),
    Rule("at risk", "C", "it computes on int32", ISSUES + "1103", _integers),
    Rule("at risk", "C", "a zero point: the int8 path is documented for symmetric scales", ISSUES + "2227",
         _zero_point),
    Rule("at risk", "C", "a batch of more than one has given wrong answers", ISSUES + "1229",
         lambda op: len(_shape(op)) == 4 and _shape(op)[0] > 1),
    Rule("at risk", "A", "its last axis is 1, which is padded to 32 elements", PERFORMANCE, _narrow_rows),
)  # fmt: skip

WIDE_NAMED = 8
"""Number of float32 layers that a report names."""
UNJUDGED = ("const", "cast", "identity")


def judged(operations: Any) -> Iterator[tuple[Any, Rule | None]]:
    """Yield each operator that computes, with the first rule against it. None means eligible by all rules."""
    for op in operations:
        if op.op_type not in UNJUDGED and not op.op_type.startswith("constexpr_"):
            yield op, next((rule for rule in RULES if rule.applies(op)), None)


def placement(verdicts: Mapping[str, int], wide: Sequence[str]) -> str:
    """Return the note of a report on where the operators of a package run, as far as the rules know.

    Args:
        verdicts: ``eligible``, ``at risk`` or ``not`` -> number of operators.
    """
    eligible, at_risk, off = (verdicts.get(verdict, 0) for verdict in ("eligible", "at risk", "not"))
    count = eligible + at_risk + off
    if off == count:
        return f"Neural Engine: not used; all {count} operators run on the CPU or the GPU"
    text = f"Neural Engine: computes in float16; no known rule keeps {eligible} of {count} operators off it"
    text += f", {at_risk} may be off" if at_risk else ""
    text += f", {off} run on the CPU or the GPU" if off else ""
    more = f" and {len(wide) - WIDE_NAMED} more" if len(wide) > WIDE_NAMED else ""
    return text + (f"; float32 layers, off it: {', '.join(wide[:WIDE_NAMED])}{more}" if wide else "")

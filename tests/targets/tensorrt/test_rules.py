"""The rules against a corpus of files, and against NVIDIA's compiler where that is installed."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from edgekit_tensorrt.acceptance import ask_compiler
from edgekit_tensorrt.operators import operators
from edgekit_tensorrt.rules import RULES, broken_rules

from tests.conformance.case import Case
from tests.targets.tensorrt.corpus import ACCEPTED, NEWER, REFUSED, SILENT

BAD = [
    pytest.param(rule, case, id=f"{rule}-{case.name}")
    for kind in (REFUSED, NEWER, SILENT)
    for rule, cases in kind.items()
    for case in cases
]


def model_of(case: Case) -> ir.Model:
    return ir.from_proto(case.model())


def broken_by(model: ir.Model) -> list[str]:
    """Names of the rules that a model breaks."""
    return [
        rule.name
        for rule in RULES
        for node in model.graph
        if (not rule.ops or node.op_type in rule.ops) and rule.breaks(node) is not None
    ]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_a_good_file_breaks_no_rule(case: Case) -> None:
    assert broken_rules(model_of(case), "tensorrt") == []


@pytest.mark.parametrize(("rule", "case"), BAD)
def test_a_bad_file_breaks_its_rule(rule: str, case: Case) -> None:
    model = model_of(case)
    assert rule in broken_by(model)
    found = broken_rules(model, "tensorrt")
    slow = case in [c for name in ("weight axis", "half quantized", "channel scales") for c in SILENT[name]]
    assert {finding.severity for finding in found} == {"warning" if slow else "error"}
    assert all(finding.message for finding in found)


def test_every_rule_is_broken_by_a_file() -> None:
    tried = {name for kind in (REFUSED, NEWER, SILENT) for name in kind}
    assert {rule.name for rule in RULES} == tried


def test_every_rule_about_an_operator_holds_for_a_good_file() -> None:
    good = {node.op_type for case in ACCEPTED for node in model_of(case).graph}
    assert [rule.name for rule in RULES if rule.ops and not good & set(rule.ops)] == []


def test_every_rule_has_a_source() -> None:
    assert all(rule.source for rule in RULES)
    assert set(operators().sources) == {"10.1", "newer"}


def test_the_words_of_a_finding() -> None:
    case = REFUSED["zero point"][0]
    (first, *_) = broken_rules(model_of(case), "jetson-orin-nano")
    assert (first.code, first.severity, first.target) == ("EK1002", "error", "jetson-orin-nano")
    assert (first.op, first.message) == ("QuantizeLinear", "zero point 3")
    assert first.fix == "quantize symmetrically, with zero point 0"


@pytest.mark.needs_tensorrt_compiler
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_nvidias_compiler_takes_what_the_rules_take(case: Case) -> None:
    assert ask_compiler(case.model().SerializeToString()).refusals == ()


@pytest.mark.needs_tensorrt_compiler
@pytest.mark.parametrize("case", [c for cases in REFUSED.values() for c in cases], ids=lambda case: case.name)
def test_nvidias_compiler_refuses_what_the_rules_refuse(case: Case) -> None:
    assert not ask_compiler(case.model().SerializeToString()).accepted


@pytest.mark.needs_tensorrt_compiler
@pytest.mark.parametrize("case", [c for cases in NEWER.values() for c in cases], ids=lambda case: case.name)
def test_nvidias_newer_compiler_takes_what_the_old_list_excludes(case: Case) -> None:
    assert ask_compiler(case.model().SerializeToString()).accepted


@pytest.mark.needs_tensorrt_compiler
@pytest.mark.parametrize("case", [c for cases in SILENT.values() for c in cases], ids=lambda case: case.name)
def test_nvidias_compiler_says_nothing_of_what_it_gets_wrong_or_slow(case: Case) -> None:
    names = [node.name for node in case.model().graph.node if node.op_type == "Conv"]
    answer = ask_compiler(case.model().SerializeToString(), names)
    assert answer.accepted
    assert answer.quantized == (set(names) if case.name == "uint8_zero" else set())

"""One case on one target, through the path a user's model takes.

    case -> file -> open_model -> run_passes -> compile_model -> files -> open_runner -> run
                 `-> ONNX Runtime, optimizations off: what is expected

The outcome is one of

    pass      every output has its name, dtype and shape, and is as close as the case asks, for two inputs
    refused   an UnsupportedError whose findings name nodes of the model; or a ModelError of the front end
              that names a node or says what is wrong with the whole, which then counts in every column;
              or an EngineError that says which input holds values that the engine has no numbers for
              (int64 beyond int32)
    wrong     anything else that came out

Any other exception escapes: it is a crash. ``FRONT`` is a column of its own: the canonical graph on the
reference, which shows a wrong pass apart from a wrong target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.evaluate.verify import FP16_SNR_LIMIT_DB, write_files
from edgekit.compiler.model.onnx_file import open_model, save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.diagnostics import Finding, errors
from edgekit.errors import EngineError, ModelError, UnsupportedError
from edgekit.target import registry
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Array, TensorSpec
from tests.conformance import (
    blocks,
    conv,
    extreme,
    index,
    layout,
    legacy,
    math,
    matmul,
    norm,
    onnx_nodes,
    pool,
    quant,
    reduce,
    resize,
    shape,
    spelled,
)
from tests.conformance.case import Case
from tests.conformance.onnx_nodes import NodeCase

FRONT = "front end"
TARGETS = ("ort", "openvino", "tflite", "coreml", "tensorrt")
HALF = ("qnn", "rknn")
"""Chips without float32: an answer passes at what a build asks of float16, where its case asks for more."""
ASKED_BY_BUILDS = ("rknn",)
"""Targets whose compiler only a build asks: it may refuse what ``check_model`` takes."""
SEEDS = (0, 1)
TINY = 1e-6
"""Largest difference from an answer that is all zeros, where no ratio can be formed."""

AnyCase = Case | NodeCase

FAMILIES: Mapping[str, Sequence[AnyCase]] = {
    "onnx": onnx_nodes.answered(),
} | {
    module.__name__.rpartition(".")[2]: module.CASES
    for module in (
        conv,
        pool,
        math,
        reduce,
        shape,
        index,
        resize,
        matmul,
        norm,
        spelled,
        extreme,
        quant,
        layout,
        blocks,
        legacy,
    )
}
CASES: Mapping[str, AnyCase] = {
    f"{family}/{case.name}": case for family, cases in FAMILIES.items() for case in cases
}
WHOLE_MODEL = ("it uses opset", "does not import an ONNX opset", "has dimensions that are not fixed")
"""What the front end says of a model as a whole, naming no node."""


@dataclass(frozen=True)
class Outcome:
    """What a target made of a case; ``detail`` is the finding codes, or what is wrong."""

    kind: Literal["pass", "refused", "wrong"]
    detail: str = ""
    why: str = field(default="", compare=False)
    """What a refusal says first, with the names of this case taken out."""


@dataclass(frozen=True)
class Prepared:
    """A case, opened and brought to the canonical form, and what its model answers."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    source: ir.Model
    canonical: ir.Model
    feeds: list[dict[str, Array]]
    expected: list[dict[str, Array]]
    written: bytes
    """The canonical model as a file: no target may change it."""


@lru_cache(maxsize=4)
def prepare(key: str, folder: Path) -> Prepared:
    """Open a case; the expected answers come from its own bytes, before anything of ours has seen them."""
    case, path = CASES[key], folder / "case.onnx"
    proto = case.model()
    path.write_bytes(proto.SerializeToString())
    feeds = [case.feeds(seed) for seed in SEEDS]
    expected = _answers(proto, feeds)
    # A 0 in a file may stand for "any": a case whose input has no element says that it means it.
    empty = {name: array.shape for name, array in feeds[0].items() if 0 in array.shape}
    source = open_model(path, empty)
    canonical = source.clone()
    run_passes(canonical)
    return Prepared(*signature(source), source, canonical, feeds, expected, save_model(canonical))


def _answers(proto: onnx.ModelProto, feeds: list[dict[str, Array]]) -> list[dict[str, Array]]:
    reference = Reference(ir.from_proto(proto))
    return [reference.run(feed) for feed in feeds]


def run_case(key: str, column: str, folder: Path) -> Outcome:
    """Run one case in one column of the grid.

    Args:
        key: ``family/name``.
        column: A target, or ``FRONT``.
        folder: Where files may be written; they are overwritten by the next case.
    """
    case = CASES[key]
    try:
        prepared = prepare(key, folder)
    except ModelError as refusal:
        named = any(node.name in str(refusal) for node in case.model().graph.node)
        named |= any(words in str(refusal) for words in WHOLE_MODEL)
        why = str(refusal).partition("): ")[2] or str(refusal)
        return (
            Outcome("refused", "ModelError", why) if named else Outcome("wrong", f"names no node: {refusal}")
        )
    if column == FRONT:
        for model in (prepared.source, prepared.canonical):
            reference = Reference(model)
            answers = [reference.run(feed) for feed in prepared.feeds]
            outcome = judge(case, prepared.expected, answers)
            if outcome.kind != "pass":
                return outcome
        return outcome
    profile, compiler = _profile(column), registry.compiler(column)
    promised = errors(compiler.check_model(prepared.canonical, profile))
    try:
        artifact = compiler.compile_model(prepared.canonical, profile, "fp32")
    except UnsupportedError as refusal:
        if column in ASKED_BY_BUILDS and not promised:
            promised = errors(refusal.findings)
        return judge_refusal(refusal, promised, prepared)
    assert save_model(prepared.canonical) == prepared.written, "compile_model changed the model it was given"
    if promised:
        return Outcome("wrong", f"check_model refuses what compile_model takes: {promised[0].message}")
    home = folder / column
    home.mkdir(exist_ok=True)
    files = write_files(artifact, home)
    engine = registry.compiler(column).TARGET.reference_executor or registry.engine(column)
    runner = engine.open_runner(files, prepared.inputs, prepared.outputs, artifact.options, threads=1)
    try:
        answers = [runner.run(feed) for feed in prepared.feeds]
    except EngineError as refusal:
        if any(f"{spec.name} contains" in str(refusal) for spec in prepared.inputs):
            return Outcome("refused", "EngineError", _plain(str(refusal), prepared))
        raise
    finally:
        runner.close()
    if column in HALF:
        case = replace(case, snr_db=min(case.snr_db, FP16_SNR_LIMIT_DB))
    return judge(case, prepared.expected, answers)


@cache
def _profile(name: str) -> Profile:
    return find_profile(name)


def judge(case: AnyCase, expected: list[dict[str, Array]], answers: list[dict[str, Array]]) -> Outcome:
    """Pass or wrong; nothing is rounded away: each output of each run counts by itself."""
    for wanted, got in zip(expected, answers, strict=True):
        if list(wanted) != list(got):
            return Outcome("wrong", f"outputs {list(got)}, expected {list(wanted)}")
        for name, array in wanted.items():
            fault = _fault(array, got[name], case)
            if fault:
                return Outcome("wrong", f"{name}: {fault}")
    return Outcome("pass")


def _fault(expected: Array, got: Array, case: AnyCase) -> str:
    """What is wrong with one output; empty where nothing is."""
    if expected.dtype != got.dtype or expected.shape != got.shape:
        return f"{got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if expected.dtype.kind != "f":
        apart = np.abs(expected.astype(np.int64) - got.astype(np.int64)).max(initial=0)
        return f"off by {apart}, expected {_few(expected)}, got {_few(got)}" if apart > case.steps else ""
    x, y = expected.astype(np.float64).ravel(), got.astype(np.float64).ravel()
    finite = np.isfinite(x)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(y[finite]).all():
        return f"not finite elsewhere: expected {_few(expected)}, got {_few(got)}"
    x, y = x[finite], y[finite]
    signal, noise = float(np.linalg.norm(x)), float(np.linalg.norm(x - y))
    if noise <= signal * 10 ** (-case.snr_db / 20) or np.abs(x - y).max(initial=0.0) <= TINY:
        return ""
    snr = 20 * np.log10(signal / noise) if signal else -np.inf
    return f"SNR {snr:.1f} dB, expected {_few(expected)}, got {_few(got)}"


def _few(array: Array) -> str:
    return np.array2string(array.ravel()[:8], precision=4, threshold=9)


def judge_refusal(refusal: UnsupportedError, promised: list[Finding], prepared: Prepared) -> Outcome:
    """A refusal must name nodes that are there, in findings, in its text, and in check_model before it."""
    found = errors(refusal.findings)
    names = set()
    for model in (prepared.source, prepared.canonical):
        names |= {value.name for value in model.graph.inputs} | {
            node.name for node in model.graph.all_nodes()
        }
    if not found:
        return Outcome("wrong", "refused without an error among its findings")
    for finding in found:
        if finding.node not in names:
            return Outcome("wrong", f"refused for {finding.node!r}, which is no node of the model")
        if finding.node not in str(refusal) or not finding.message:
            return Outcome("wrong", f"the text of the refusal does not say why {finding.node} is refused")
    if found != promised:
        return Outcome("wrong", f"refused for {found}, and check_model said {promised}")
    why = _plain(found[0].message, prepared)
    return Outcome("refused", " ".join(sorted({finding.code for finding in found})), why)


def _plain(message: str, prepared: Prepared) -> str:
    """A message without the names of values and the large numbers of this case."""
    names = {str(value.name) for value in prepared.canonical.graph.inputs}
    names |= {str(v.name) for node in prepared.canonical.graph.all_nodes() for v in node.outputs}
    for name in sorted(names - {"a", "A", "None"}, key=len, reverse=True):
        message = re.sub(rf"(?<![\w/]){re.escape(name)}(?![\w/])", "a value", message)
    message = re.sub(r" \((a value|\S+/\S+)\)$", "", message)
    return re.sub(r"-?\d{6,}", "...", message).strip()

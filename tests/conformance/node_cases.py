"""Run ONNX's own node cases of the installed onnx on every target, and count what each makes of them.

    python -m tests.conformance.node_cases                         ort, openvino, tflite, coreml
    python -m tests.conformance.node_cases tflite --opset 27       one target, cases of opset 27 and later
    python -m tests.conformance.node_cases --readers               also the readers of two engines

The cases are those that ONNX Runtime answers as ONNX expects (tests/conformance/onnx_nodes.py). A target is
right, refuses (the reasons are counted), or is wrong, which ends the command with 1. The suite runs the same
cases (test_conformance.py); test_node_cases.py is the short form.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array
from tests.conformance.grid import CASES, Outcome, judge, run_case
from tests.conformance.onnx_nodes import NodeCase

TARGETS = ("ort", "openvino", "tflite", "coreml")
Read = Callable[[onnx.ModelProto, dict[str, Array]], dict[str, Array]]


def node_keys(opset: int = 0) -> list[str]:
    """Return the keys of ONNX's cases of this opset and later ones; cases without an opset count as 0."""
    return [key for key, case in CASES.items() if isinstance(case, NodeCase) and _opset(case) >= opset]


def outcome_on(key: str, column: str, folder: Path) -> Outcome:
    """Run one case on a target; a crash is wrong."""
    try:
        return run_case(key, column, folder)
    except Exception as crash:  # the next cases run
        return Outcome("wrong", f"{type(crash).__name__}: {(str(crash).splitlines() or [''])[0]}")


def read_by_engine(key: str, read: Read) -> Outcome:
    """Give one case to an engine's own reader; what the engine raises is a refusal."""
    case = CASES[key]
    assert isinstance(case, NodeCase)
    try:
        answers = read(case.model(), case.feeds(0))
    except Exception as refusal:  # engines' exceptions share no root
        return Outcome("refused", type(refusal).__name__, (str(refusal).splitlines() or [""])[0])
    return judge(case, [case.expected()], [answers])


def _onnx_runtime(proto: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    session = onnxruntime().InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in proto.graph.output]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _openvino(proto: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model=proto.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    given = {name: array for name, array in feeds.items() if _is_port(compiled, name)}
    results = compiled(given)
    names = [value.name for value in proto.graph.output]
    return {name: np.asarray(results[k]) for k, name in enumerate(names)}


def _is_port(compiled: object, name: str) -> bool:
    return any(name in port.get_names() for port in compiled.inputs)  # type: ignore[attr-defined]


READERS: dict[str, Read] = {"ONNX Runtime itself": _onnx_runtime, "OpenVINO itself": _openvino}


def _opset(case: NodeCase) -> int:
    return max([entry.version for entry in case.source.opset_import if not entry.domain], default=0)


def _report(column: str, outcomes: dict[str, Outcome]) -> int:
    """Print what a column made of the cases; return the number of wrong ones."""
    kinds = Counter(outcome.kind for outcome in outcomes.values())
    print(
        f"{column}: {len(outcomes)} cases, {kinds['pass']} right, {kinds['refused']} refused, "
        f"{kinds['wrong']} wrong",
        flush=True,
    )
    refused = [outcome for outcome in outcomes.values() if outcome.kind == "refused"]
    for (code, why), count in Counter((o.detail, o.why) for o in refused).most_common():
        print(f"  {count:4} {code}: {why[:150]}")
    for key, outcome in outcomes.items():
        if outcome.kind == "wrong":
            print(f"  wrong {key}: {outcome.detail[:200]}")
    return kinds["wrong"]


def main(arguments: Sequence[str]) -> int:
    """Run the cases on the targets and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.node_cases")
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--opset", type=int, default=0, help="only cases of this opset and later ones")
    parser.add_argument("--readers", action="store_true", help="also run the engines' own readers")
    options = parser.parse_args(arguments)
    keys, wrong = node_keys(options.opset), 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEKIT_CACHE"] = folder
        outcomes: dict[str, dict[str, Outcome]] = {target: {} for target in options.targets}
        for key in keys:  # a case is prepared once for all targets
            for target in options.targets:
                outcomes[target][key] = outcome_on(key, target, Path(folder))
    print(f"onnx {onnx.__version__}, ONNX Runtime {onnxruntime().__version__}")
    for target in options.targets:
        wrong += _report(target, outcomes[target])
    for name, read in READERS.items() if options.readers else ():
        _report(name, {key: read_by_engine(key, read) for key in keys})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

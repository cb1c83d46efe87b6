"""docs/ops.md: which operators run on which target, from what the grid is known to give.

``python -m tests.conformance.ops_page`` writes it; a test fails where it is stale.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import onnx.defs

from edgekit.model.onnx_file import OPSETS
from edgekit.passes.decompositions.linear_algebra import MOST_ROWS
from edgekit.passes.decompositions.recurrent import MOST_STEPS
from edgekit.passes.unroll_loops import MOST_NODES
from edgekit.passes.write_out_newer import CUM_PROD_LENGTH
from tests.conformance.expectations import read_expected
from tests.conformance.grid import CASES, TARGETS

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"

HEAD = f"""# Operators

Written by `python -m tests.conformance.ops_page` from what the conformance grid gives, not by hand.

Files of opset {OPSETS[0]} to {OPSETS[-1]} are read; every op is brought to its form of opset 23 first.
*since* is the opset that last changed the op. A cell says how many of the op's conformance cases pass (ours
and ONNX's own), of how many. Cases that hold several
operators count for each. Codes say why the others are refused:

| code | |
|---|---|
| EK1001 | the target has no form for the operator, nor for what it could be written out with |
| EK1002 | it has, but not in this form: an attribute, a size, or something that must be a constant |
| EK1003 | the data decide a shape, and the target needs a static one |
| EK1004 | an element type that the target's kernels do not have |
| EngineError | an input beyond int32, which the engine computes integers in |
| ModelError | refused when the file is opened: no exact form in opset 23 |
| wrong | the engine answers wrongly; verification rejects it when a bundle is built |

`edgekit check MODEL -t TARGET` says it of your model, node by node, with what to do. The columns of coreml
and tensorrt are what the files say, run by the reference executor and by ONNX Runtime: on no Mac, no GPU.

Limits: a Loop or a Scan of a known number of steps is unrolled into up to {MOST_NODES:,} nodes, else it
runs on ort; Det takes matrices of up to {MOST_ROWS} rows where the target has no kernel, CumProd
{CUM_PROD_LENGTH} elements, an LSTM, GRU or RNN {MOST_STEPS} steps; one dimension of an output may be as
the data give, on ort and openvino.
"""


def page() -> str:
    """The page as it should be."""
    cases = _cases_by_op()
    expected = read_expected()
    lines = [HEAD, f"| op | since | {' | '.join(TARGETS)} |", f"|---|---|{'---|' * len(TARGETS)}"]
    for op, keys in sorted(cases.items()):
        cells = []
        for target in TARGETS:
            outcomes = [expected[target].of(key) for key in keys]
            passed = sum(outcome.kind == "pass" for outcome in outcomes)
            codes = {o.detail if o.kind == "refused" else "wrong" for o in outcomes if o.kind != "pass"}
            words = sorted({word for code in codes for word in code.split()})
            cells.append(" ".join([f"{passed} of {len(outcomes)}", *words]))
        lines.append(f"| {op} | {_since(op)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cases_by_op() -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key, case in CASES.items():
        if key.endswith("_expanded") or "_expanded_ver" in key:
            continue  # ONNX's functions written out: they are about other operators
        graphs = [case.model().graph]
        ops = set()
        while graphs:
            for node in graphs.pop().node:
                ops.add(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
                graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        for op in ops - {"Constant"}:
            found[op].append(key)
    return found


def _since(op: str) -> str:
    """Of the forms that are read; onnx knows later ones."""
    domain, _, name = op.rpartition(".")
    newest = onnx.defs.onnx_opset_version() if domain else OPSETS[-1]
    try:
        return str(onnx.defs.get_schema(name, newest, domain).since_version)
    except onnx.defs.SchemaError:
        return ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.exit(0)

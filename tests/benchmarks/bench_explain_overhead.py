"""The time of a run that ``explain`` states, against the median of plain runs, on 60 small nodes.

    python -m tests.benchmarks.bench_explain_overhead.py

ONNX Runtime's profiler takes as long for one of these nodes as all of them take without it. The ratio should
be near 1; with the profiler's time in it, it is far above 20.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import edgekit
from edgekit.compiler.explain.explain import explain
from edgekit.runtime import Session
from tests.fixtures.graphs import Graph

RUNS = 200


def main() -> None:
    """Print both times and their ratio."""
    with tempfile.TemporaryDirectory() as name:
        g = Graph({"x": (1, 16)})
        last = "x"
        for _ in range(30):
            last = g("Cos", g("Sin", last))
        g.model(Path(name), last)
        bundle = edgekit.build(Path(name) / "small.onnx", targets=["ort"])
    (found,) = explain(bundle)
    run_ms = found["run_ms"]
    assert run_ms is not None
    taken = []
    with Session(bundle, threads=1) as session:
        for _ in range(RUNS):
            began = time.perf_counter()
            session.run(bundle.golden[0][0])
            taken.append(1000 * (time.perf_counter() - began))
    plain_ms = statistics.median(taken)
    print(f"explain {run_ms:.3f} ms, plain runs {plain_ms:.3f} ms, ratio {run_ms / plain_ms:.2f}")


if __name__ == "__main__":
    main()

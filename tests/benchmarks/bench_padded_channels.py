"""CPU time of quantized Convs of few channels on ONNX Runtime, as they are and padded; least of turns.

    PYTHONPATH=. python tests/benchmarks/bench_padded_channels.py

Each is the first Conv of a network: 32 outputs, stride 2, one thread. The rest of the run is the same.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import numpy as np
from edgekit_ort import padded_channels
from edgekit_ort.compile import compile_model
from edgekit_ort.quant_rules import rules
from edgekit_ort.run import open_session

from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.graphs import NEAREST, Graph, seen, with_weights

RUNS, OUTPUTS = 200, 32
CASES = (
    (1, 3),
    (1, 5),
    (1, 7),
    (2, 3),
    (2, 5),
    (2, 7),
    (3, 1),
    (3, 3),
    (3, 5),
    (3, 7),
    (3, 9),
    (5, 3),
    (6, 3),
)
"""Channels and size of the window."""
PIXELS = 160


def main() -> None:
    profile = find_profile("ort")
    print("| channels | window | as they are, us | multiple of 4 | multiple of 8 |\n|---|---|---|---|---|")
    for channels, size in CASES:
        g = Graph({"x": (1, channels, PIXELS, PIXELS)})
        weights, bias = g.weights(OUTPUTS, channels, size, size), g.weights(OUTPUTS)
        y = g("Conv", "x", weights, bias, pads=[size // 2] * 4, strides=[2, 2])
        with tempfile.TemporaryDirectory() as folder:
            model = g.model(Path(folder), g.conv(y, 8, OUTPUTS))
        given = rules(profile)
        model = emit(model, with_weights(model, place(model, given, seen(model), NEAREST), given), given)
        sessions = []
        for multiple in (1, 4, 8):
            padded_channels.MULTIPLE, padded_channels.MOST_ADDED = multiple, 10**9
            content = compile_model(model, profile, "fp32").files["model.onnx"]
            sessions.append(open_session(bytes(content), threads=1))
        x = np.random.default_rng(0).normal(0, 1, (1, channels, PIXELS, PIXELS)).astype(np.float32)
        best = [math.inf] * len(sessions)
        for _ in range(RUNS):
            for index, session in enumerate(sessions):
                started = time.process_time()
                session.run(None, {"x": x})
                best[index] = min(best[index], time.process_time() - started)
        times = " | ".join(f"{1e6 * seconds:.0f}" for seconds in best)
        print(f"| {channels} | {size}x{size} | {times} |", flush=True)


if __name__ == "__main__":
    main()

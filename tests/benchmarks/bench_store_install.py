"""A bundle of 20 MB from installed to committed, without its health window. Goal: below 2 s.

python tests/benchmarks/bench_store_install.py [--size-mb N] [--rounds N]

The window is zero seconds and one answer; everything else is as on a device: hashes, flushes to disk, the
golden vectors on the engine, the states. The model is one MatMul and its weights, on ONNX Runtime.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.runtime import Metrics, Store
from edgekit.runtime.store.bundle_store import HealthWindow


def model(path: Path, size_mb: float, seed: int) -> Path:
    """One MatMul with float weights of that size."""
    n = math.isqrt(int(size_mb * 1e6 / 4))
    weights = np.random.default_rng(seed).standard_normal((n, n), np.float32) / math.sqrt(n)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "big",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, n])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, n])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size-mb", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        bundles = []
        for seed in range(asked.rounds + 1):
            source = model(folder / f"{seed}.onnx", asked.size_mb, seed)
            built = edgekit.build(source, targets=["ort"], precision="fp32")
            bundles.append(built.save(folder / f"{seed}.edgekit"))
        store = Store(folder / "store", bundles[0], window=HealthWindow(0.0, 1))
        store.open().close()  # the engine is imported
        for path in bundles[1:]:
            began = time.perf_counter()
            store.install(path)
            installed = time.perf_counter()
            with store.open() as session:
                opened = time.perf_counter()
                metrics = Metrics(session)
                verdict = store.observe(metrics)
                metrics.run({spec.name: spec.zeros() for spec in session.inputs})
                verdict = store.observe(metrics)
                ended = time.perf_counter()
            assert verdict == "committed"
            print(
                f"{path.stat().st_size / 1e6:.1f} MB: install {installed - began:.2f} s, start with probe "
                f"and golden vectors {opened - installed:.2f} s, an answer and commit {ended - opened:.2f}"
                f" s, in all {ended - began:.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

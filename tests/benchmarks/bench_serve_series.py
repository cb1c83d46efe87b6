"""All load series of `edgekit serve`, by one command, on a machine that does nothing else (about 15 minutes):

    python tests/benchmarks/bench_serve_series.py [--mlserver PYTHON] [--litserve PYTHON] [--short]

A small network, one of about 1 ms with and without batches at 4,000 requests a second, and YOLOX-nano where
../shared (or EDGEKIT_SHARED) has it; then the faults, and the peers whose Python is given. `--short` shows
that everything runs, and nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import edgekit
from tests.benchmarks.packaged_models import SHARED

HERE = Path(__file__).parent
WIDTH, BATCH = 1024, 8


def network(path: Path, layers: int) -> Path:
    """``layers`` products with 1024 x 1024 weights; twelve take about 1 ms on one thread."""
    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for index in range(layers):
        weight = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"]))
        value = "y" if index == layers - 1 else f"r{index}"
        nodes.append(helper.make_node("Tanh", [f"m{index}"], [value]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in "xy")
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def run(title: str, script: str, *options: object) -> None:
    print(f"\n## {title}", flush=True)
    subprocess.run([sys.executable, str(HERE / script), *map(str, options)], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mlserver")
    parser.add_argument("--litserve")
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    lasting = ["--seconds", 1, "--spike", 1] if given.short else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bundles: dict[str, Path] = {}
        for name, layers in (("small", 1), ("1ms", 12)):
            model = network(folder / f"{name}.onnx", layers)
            for rows in (1, BATCH):
                built = edgekit.build(model, targets=["ort"], shapes={"x": (rows, WIDTH)})
                bundles[f"{name}-{rows}"] = built.save(folder / f"{name}-{rows}.edgekit")
        load = "bench_serve_load.py"
        run("a small network", load, bundles["small-1"], *lasting)
        run("1 ms, 4,000 a second", load, bundles["1ms-1"], "--rate", 4000, *lasting)
        both = (bundles["1ms-1"], bundles[f"1ms-{BATCH}"])
        run("1 ms in batches, 4,000 a second", load, *both, "--rate", 4000, *lasting)
        yolox = SHARED / "models" / "yolox_nano.onnx"
        if yolox.exists():
            bundle = edgekit.build(yolox, targets=["ort"]).save(folder / "yolox.edgekit")
            run("YOLOX-nano", load, bundle, *lasting)
        count = 2000 if given.short else 100_000
        run("faults", "bench_serve_faults.py", bundles["small-1"], "--requests", count)
        peers = [f"--{name}={path}" for name, path in vars(given).items() if name != "short" and path]
        if peers:
            for name in ("small", "1ms"):
                options = [bundles[f"{name}-1"], folder / f"{name}.onnx", *peers]
                run(f"peers, {name}", "bench_serve_peers.py", *options, *lasting[:2])


if __name__ == "__main__":
    main()

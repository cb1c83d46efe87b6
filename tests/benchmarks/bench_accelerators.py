"""Every shared model on an accelerator: what is admitted, and whether that is right.

    tests/vulkan/setup
    python -m tests.benchmarks.bench_accelerators [--inputs 64] [--models vww_96_float.onnx ...]

    python -m venv other; other/bin/pip install numpy onnxruntime-openvino
    python -m tests.benchmarks.bench_accelerators --device openvino-cpu --python other/bin/python

Each model is built for ort and tflite in fp32. The first form runs on a GPU made of software, lavapipe
(tests/vulkan). --device names another accelerator of edgekit doctor, and --python an interpreter with another
build of an engine. Each variant's accelerated copy is verified as a session does it, and compared with the
CPU on further random inputs, which no verdict has seen.
With --own, the first form runs on this machine's own GPU, and prints the times of a run on it and on the CPU
too, and those of runs that are not recorded: 2 threads, minima of 50 runs in turns.
Printed are the verdict, the nodes by provider from the engine's own profile, and the lowest SNR of any output
on the golden vectors and on the others. A copy is wrong if any output of the others is below the limit.
lavapipe computes on the CPU: its times say nothing of a GPU, and are not printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import edgekit
from edgekit.errors import EdgeKitError
from tests.conftest import SHARED
from tests.vulkan import lavapipe

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "silero_vad_16k_sequence.onnx": {"input": (4, 576)},
    "ch_PP-OCRv4_det_infer.onnx": {"x": (1, 3, 320, 320)},
    "ch_PP-OCRv4_rec_infer.onnx": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (1, 3, 48, 192)},
    "centerface.onnx": {"input.1": (1, 3, 320, 320)},
}
LEFT_OUT = ("silero_vad.onnx",)  # its graph runs for one value of sr only
CHECK = """
import json, os, sys, time
os.environ["EDGEKIT_CACHE"] = sys.argv[3]  # no verdict of an earlier run
import numpy as np
from edgekit.bundle.bundle import Bundle
from edgekit.runtime.fallback.accelerated import accelerated_copy, interfaces_of
from edgekit.runtime.loading import golden_check, probe, unpacked_files
from edgekit.target import registry
from edgekit.target.accelerators import named

device = sys.argv[4]
bundle = Bundle.open(sys.argv[1])
random = np.random.default_rng(1)
for variant in bundle.variants:
    if not variant.usable or not named(interfaces_of(variant.target), device):
        continue
    copy = accelerated_copy(variant, device)
    row = {"variant": variant.name, "refused": probe.probe_once(bundle, copy, 2).reason}
    limits = golden_check.limits_db(copy, [s.name for s in bundle.outputs])
    try:
        engine, files = registry.engine(variant.target), unpacked_files.unpack(bundle, variant)
        cpu, gpu = (
            registry.open_runner(engine, files, bundle.inputs, bundle.outputs, each.options, 2)
            for each in (variant, copy)
        )
    except Exception as problem:
        print(json.dumps(row))
        continue
    row["nodes"] = gpu.facts().get("nodes_by_provider", {})
    row["copies"] = gpu.facts().get("copies_between_processors", 0)
    row["reasons"] = sorted({node.reason for node in getattr(gpu, "placement", ()) if node.reason})
    golden = [feeds for feeds, _ in bundle.golden]
    def other(spec, known):
        if known.dtype.kind != "f":
            return known
        return random.uniform(known.min(), known.max(), known.shape).astype(known.dtype)
    others = [{s.name: other(s, golden[0][s.name]) for s in bundle.inputs} for _ in range(int(sys.argv[2]))]
    for name, inputs in (("golden", golden), ("others", others)):
        found = []
        for feeds in inputs:
            expected, actual = cpu.run(feeds), gpu.run(feeds)
            for output in expected:
                db = golden_check.snr_db(expected[output], actual[output])
                if db is not None:
                    found.append((db - limits[output], db, limits[output]))
        worst = min(found, default=(None, None, None))
        row |= {name: len(inputs), name + "_db": worst[1], name + "_limit_db": worst[2]}
        row["wrong_on_" + name] = worst[0] is not None and worst[0] < 0
    if sys.argv[5:] == ["times"]:
        runners = {"cpu_ms": cpu, "gpu_ms": gpu}
        if gpu.facts().get("recorded"):
            from edgekit_ort import accelerators

            found, model = accelerators._require_device(device), files["model.onnx"]
            runners["unrecorded_ms"] = accelerators._open(
                found, model, bundle.inputs, bundle.outputs, variant.options, 2
            )
        times = {key: [] for key in runners}
        for number in range(50):
            for key, runner in runners.items():
                began = time.perf_counter()
                runner.run(golden[0])
                times[key].append(1000 * (time.perf_counter() - began))
        row |= {key: round(min(values), 3) for key, values in times.items()}
    print(json.dumps(row), flush=True)
"""


def check(model: Path, inputs: int, device: str, python: str, own: bool) -> list[dict[str, Any]]:
    """Build a model and check its variants on a device, by an interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder, "model.edgekit"), Path(folder, "cache")
        edgekit.build(model, targets=["ort", "tflite"], shapes=SHAPES.get(model.name)).save(path)
        command = [python, "-c", CHECK, str(path), str(inputs), str(cache), device]
        done = subprocess.run(
            [*command, "times"] if own else command,
            env={**os.environ, **({} if own else lavapipe.environment())},
            stdout=subprocess.PIPE,
            text=True,
            timeout=3600,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def outcome(row: Mapping[str, Any]) -> str:
    """Return one of five words about a verdict, e.g. ``right and admitted``."""
    if "others" not in row:
        return "not loaded"
    return (
        ("wrong" if row["wrong_on_others"] else "right")
        + " and "
        + ("refused" if row["refused"] else "admitted")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=64)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--own", action="store_true")
    given = parser.parse_args()
    names = given.models or sorted(
        p.name for p in (SHARED / "models").glob("*.onnx") if p.name not in LEFT_OUT
    )
    outcomes: Counter[str] = Counter()
    for name in names:
        try:
            for row in check(SHARED / "models" / name, given.inputs, given.device, given.python, given.own):
                outcomes[outcome(row)] += 1
                print(name, outcome(row), json.dumps(row), flush=True)
        except EdgeKitError as problem:
            print(name, f"not built: {str(problem).splitlines()[0]}", flush=True)
    print(dict(outcomes))


if __name__ == "__main__":
    main()

"""From the start of a process to its first answer, and the memory it holds then, against the raw engine's.

    python tests/benchmarks/bench_start.py BUNDLE.edgekit [--engine ort] [--rounds 15]

Each way is a fresh process; they take turns in an order of chance. The least of each is compared, and the
median of what differs within a round is shown: the goal is 1.15 times the raw engine's processor time (which
a busy machine changes less than the clock's) and 10 MB over its memory. All run from bytecode, as pip
installs it; where PYTHONDONTWRITEBYTECODE is set, a checkout is compiled anew at each start, 25 ms.
``warm`` and ``probe`` are shown beside it, and how the first answer compares with the steady ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from edgekit.bundle import Bundle

GOAL_RATIO, GOAL_MB = 1.15, 10
CLOCK = """
import json, os, sys, time
import numpy as np
path, engine = sys.argv[1:3]
specs = json.loads(sys.argv[3])
feeds = {name: np.full(shape, 1, dtype) for name, dtype, shape in specs}
files = json.loads(sys.argv[4])
"""
TELL = """
clock_s = time.monotonic() - float(os.environ["BEGAN"])
first_s = time.process_time()
memory_mb = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
times = []
for _ in range(30):
    began = time.perf_counter(); run(); times.append(time.perf_counter() - began)
steady_s = sorted(times)[len(times) // 2]
print(json.dumps({"first_s": first_s, "clock_s": clock_s, "memory_mb": memory_mb, "ratio": run_s / steady_s}))
"""
FIRST = "\nbegan = time.perf_counter(); run(); run_s = time.perf_counter() - began\n"
RAW = {
    "ort": """
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it would start an uploader
import onnxruntime
settings = onnxruntime.SessionOptions(); settings.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(files["model.onnx"], settings, providers=["CPUExecutionProvider"])
run = lambda: session.run(None, feeds)
""",
    "openvino": """
sys.modules["openvino_telemetry"] = None  # it would send what it can, and costs 90 ms
import openvino
core = openvino.Core()
settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}
model = core.compile_model(core.read_model(files["model.xml"], files["model.bin"]), "CPU", settings)
run = lambda: model(feeds)
""",
    "tflite": """
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(model_path=files["model.tflite"], num_threads=1)
interpreter.allocate_tensors()
def run():
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.ones(detail["shape"], detail["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
""",
}
SESSION = """
from edgekit.runtime import Session
session = Session(path, engine=engine, strict=True, threads=1{options})
run = lambda: session.run(feeds)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("--engine", choices=sorted(RAW), action="append")
    arguments.add_argument("--rounds", type=int, default=15)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, Bundle.open(given.bundle) as bundle:
        os.environ["EDGEKIT_CACHE"] = folder
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for engine in given.engine or sorted(RAW):
            measure(bundle, engine, Path(folder), given.rounds)


def measure(bundle: Bundle, engine: str, folder: Path, rounds: int) -> None:
    variant = next(v for v in bundle.variants if v.target == engine and v.usable)
    files = {name: str(folder / engine / name) for name in variant.files}
    for name, path in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(bundle.read(variant.files[name]))
    ways = {
        "raw engine": RAW[engine],
        "Session": SESSION.format(options=""),
        "Session, warm": SESSION.format(options=", warm=True"),
        "Session, probed before": SESSION.format(options=", probe=True"),
    }
    specs = json.dumps([(spec.name, spec.dtype, spec.shape) for spec in bundle.inputs])
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    shuffled = random.Random(0)
    for number in range(rounds + 1):
        for name in shuffled.sample(list(ways), len(ways)):
            script = CLOCK + ways[name] + FIRST + TELL
            command = [sys.executable, "-c", script, bundle.name, engine, specs, json.dumps(files)]
            environment = {**os.environ, "BEGAN": repr(time.monotonic())}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name} failed\n{done.stderr}")
            if number:  # the first unpacks, probes and reads from the disk
                found[name].append(json.loads(done.stdout))
            elif name == "Session, probed before":
                probe_s = time.monotonic() - float(environment["BEGAN"])
                print(f"\n{engine}: with the probe itself {probe_s:.2f} s")
    raw = {key: min(f[key] for f in found["raw engine"]) for key in ("first_s", "memory_mb")}
    for name, figures in found.items():
        first_s, clock_s, memory_mb = (
            min(f[k] for f in figures) for k in ("first_s", "clock_s", "memory_mb")
        )
        ratios = sorted(f["ratio"] for f in figures)
        first_run = ratios[len(ratios) // 2]
        more_mb = memory_mb - raw["memory_mb"]
        over = sorted(f["first_s"] / r["first_s"] for f, r in zip(figures, found["raw engine"], strict=True))
        print(
            f"    {name:24} {1e3 * first_s:7.1f} ms of the processor  {first_s / raw['first_s']:5.3f}x "
            f"(median {over[len(over) // 2]:5.3f}x)  "
            f"{1e3 * clock_s:7.1f} ms by the clock  {memory_mb:6.1f} MB ({more_mb:+.1f})  "
            f"first run {first_run:.2f}x the steady ones"
        )
    first_s, memory_mb = (min(f[key] for f in found["Session"]) for key in ("first_s", "memory_mb"))
    within = first_s <= GOAL_RATIO * raw["first_s"] and memory_mb <= raw["memory_mb"] + GOAL_MB
    print(f"    {'within' if within else 'OVER'} the goal of {GOAL_RATIO} and {GOAL_MB} MB")


if __name__ == "__main__":
    main()

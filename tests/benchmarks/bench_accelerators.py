"""Every shared model on a GPU made of software: what is admitted, and whether that is right.

    tests/vulkan/setup
    python -m tests.benchmarks.bench_accelerators [--inputs 64] [--models vww_96_float.onnx ...]

Each model is built for ort and tflite in fp32. On lavapipe (tests/vulkan) each variant's accelerated copy is
verified as a session does it, and compared with the CPU on further random inputs. Printed are the
verdict, the nodes by provider, and the lowest SNR of any output on the golden vectors and on the others.
The adapter computes on the CPU: its times say nothing of a GPU, and are not printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import edgekit
from edgekit.errors import EdgeKitError
from tests.conftest import SHARED
from tests.vulkan import lavapipe

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "silero_vad_16k_sequence.onnx": {"input": (4, 576)},
    "ch_PP-OCRv4_det_infer.onnx": {"x": (1, 3, 320, 320)},
    "ch_PP-OCRv4_rec_infer.onnx": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (1, 3, 48, 192)},
}
LEFT_OUT = ("silero_vad.onnx",)  # its graph runs for one value of sr only
CHECK = """
import json, sys
import numpy as np
from edgekit.bundle.bundle import Bundle
from edgekit.runtime.fallback.accelerated import accelerated_copy
from edgekit.runtime.loading import golden_check, probe, unpacked_files
from edgekit.target import registry

bundle = Bundle.open(sys.argv[1])
random = np.random.default_rng(1)
for variant in bundle.variants:
    if not variant.usable:
        continue
    copy = accelerated_copy(variant, "gpu")
    row = {"variant": variant.name, "verdict": probe.probe_once(bundle, copy, 2).why or "admitted"}
    row["limit_db"] = min(golden_check.limits_db(copy, [s.name for s in bundle.outputs]).values())
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
    golden = [feeds for feeds, _ in bundle.golden]
    def other(spec, known):
        if known.dtype.kind != "f":
            return known
        return random.uniform(known.min(), known.max(), known.shape).astype(known.dtype)
    others = [{s.name: other(s, golden[0][s.name]) for s in bundle.inputs} for _ in range(int(sys.argv[2]))]
    for name, inputs in (("golden_db", golden), ("others_db", others)):
        found = []
        for feeds in inputs:
            expected, actual = cpu.run(feeds), gpu.run(feeds)
            found += [golden_check.snr_db(expected[n], actual[n]) for n in expected]
        row[name] = min([db for db in found if db is not None], default=None)
    print(json.dumps(row))
"""


def check(model: Path, inputs: int) -> list[dict[str, object]]:
    """Build a model and check its variants."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.edgekit")
        edgekit.build(model, targets=["ort", "tflite"], shapes=SHAPES.get(model.name)).save(path)
        return [json.loads(line) for line in lavapipe.python(CHECK, str(path), str(inputs)).splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=64)
    parser.add_argument("--models", nargs="*", default=[])
    given = parser.parse_args()
    names = given.models or sorted(
        p.name for p in (SHARED / "models").glob("*.onnx") if p.name not in LEFT_OUT
    )
    for name in names:
        try:
            for row in check(SHARED / "models" / name, given.inputs):
                print(name, json.dumps(row), flush=True)
        except EdgeKitError as problem:
            print(name, f"not built: {str(problem).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()

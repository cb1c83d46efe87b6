"""MLPerf Tiny's keyword spotting on a microcontroller's kernels: int8 on TFLite Micro beside the float model.

    git clone https://github.com/eembc/energyrunner
    python tests/benchmarks/bench_keyword_spotting.py kws_ref_model_float32.onnx energyrunner/datasets/kws01

The folder holds the benchmark's own test recordings (Speech Commands v2) as features: 1,000 files of 49 x 10
MFCCs in int8, of the scale and zero point of its reference model; ``tst_000000_Stop_7.bin`` is of class 7.
The first 200 are what is calibrated on, the others are judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import edgekit
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.runtime import Session
from edgekit.tensor_spec import Array

SCALE, ZERO_POINT = np.float32(0.5847029), 83
"""Of the input of kws_ref_model.tflite, in mlcommons/tiny's benchmark/training/keyword_spotting."""
SHAPE = (1, 49, 10, 1)
CALIBRATION = 200
GOALS = {"int8 is right": 0.9, "the same answer": 0.97}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("features", type=Path)
    arguments.add_argument("--time-budget", type=float, default=40)
    given = arguments.parse_args()
    paths = sorted(given.features.glob("tst_*_*_*.bin"))
    inputs = [{"input_1": _features(path)} for path in paths]
    classes = np.array([int(path.stem.rpartition("_")[2]) for path in paths])[CALIBRATION:]
    bundle = edgekit.build(
        given.model, targets=["tflm"], precision="int8", samples=inputs[:CALIBRATION], fallback=False,
        shapes={"input_1": SHAPE}, time_budget=given.time_budget,
    )  # fmt: skip
    print(bundle.report)
    reference = Reference(open_model(given.model, {"input_1": SHAPE}))
    floats = np.array([_answer(reference.run(each)) for each in inputs[CALIBRATION:]])
    with Session(bundle, engine="tflm") as session:
        integers = np.array([_answer(session.run(each)) for each in inputs[CALIBRATION:]])
    shares = {
        "float is right": np.mean(floats == classes),
        "int8 is right": np.mean(integers == classes),
        "the same answer": np.mean(integers == floats),
    }
    for name, share in shares.items():
        goal = f"  goal {GOALS[name]:.1%}" if name in GOALS else ""
        print(f"{name:16} {share:.1%} of {len(classes)}{goal}")


def _features(path: Path) -> Array:
    stored = np.fromfile(path, np.int8).astype(np.float32)
    return ((stored - ZERO_POINT) * SCALE).reshape(SHAPE)


def _answer(outputs: dict[str, Array]) -> int:
    (scores,) = outputs.values()
    return int(np.argmax(scores))


if __name__ == "__main__":
    main()

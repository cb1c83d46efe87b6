"""Where a variant's decibels go: to our passes, or to the order in which an engine sums.

    python tests/benchmarks/bench_rounding.py MODEL.onnx [--samples PATH] [--card CARD] [--shape NAME=1x3]

SNR of each output against the source model on ONNX Runtime, nothing optimized: the reference of every build.

    the source model itself, optimized by ONNX Runtime, and on OpenVINO: no work of ours is in these
    the source model with its inputs nudged in the last place: what the model makes of rounding
    the canonical model, not optimized: what our passes cost
    the canonical model on each target

Where the source model is no better on an engine than our variant, the engine's own rounding is the limit.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.compiler.build.build_request import parse_shape
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.verify import compare, perturbed
from edgekit.compiler.model.onnx_file import open_model, save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.processing import load_card
from edgekit.target.installed_profiles import find_profile
from edgekit.target.registry import compiler, engine
from edgekit.tensor_spec import Array, TensorSpec

Run = Callable[[Mapping[str, Array]], dict[str, Array]]
SAMPLES = 2


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--samples")
    arguments.add_argument("--card", type=Path)
    arguments.add_argument("--shape", action="append", default=[], type=parse_shape)
    given = arguments.parse_args()
    card = load_card(given.card) if given.card else None
    source = open_model(given.model, {**(card.shapes() if card else {}), **dict(given.shape)})
    inputs, outputs = signature(source)
    samples = load_samples(given.samples, inputs, card, limit=SAMPLES)
    canonical = source.clone()
    run_passes(canonical)
    reference = Reference(source)
    expected = [reference.run(sample) for sample in samples.arrays]
    print(f"{given.model.name} on {samples.origin}; dB for each output")
    print(f"{'':36}" + "".join(f"{spec.name[:18]:>20}" for spec in outputs))
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Run] = {
            "source, ONNX Runtime optimized": Reference(source, optimize=True).run,
            "source, OpenVINO f32": on_openvino(source, outputs),
            "source, inputs nudged": lambda feeds: reference.run(perturbed(feeds, 0)),
            "canonical, not optimized": Reference(canonical).run,
        }
        for name in ("ort", "openvino", "tflite"):
            files = compiler(name).compile_model(canonical, find_profile(name), "fp32")
            paths = {file: Path(folder) / f"{name}-{file}" for file in files.files}
            for file, path in paths.items():
                path.write_bytes(files.files[file])
            runner = engine(name).open_runner(paths, inputs, outputs, files.options, 1)
            ways[f"variant {name}-fp32"] = runner.run
        for name, run in ways.items():
            found = [run(sample) for sample in samples.arrays]
            errors = [
                compare([e[spec.name] for e in expected], [f[spec.name] for f in found], 0).snr_db
                for spec in outputs
            ]
            print(f"{name:36}" + "".join(f"{'exact' if db is None else f'{db:.1f}':>20}" for db in errors))


def on_openvino(source: ir.Model, outputs: tuple[TensorSpec, ...]) -> Run:
    """The source model through OpenVINO's own reader, one thread."""
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(save_model(source)), "CPU", settings)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        answers = compiled(dict(feeds))
        return {spec.name: np.array(answers[place]) for place, spec in enumerate(outputs)}

    return run


if __name__ == "__main__":
    main()

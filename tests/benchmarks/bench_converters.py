"""LiteRT latency of our .tflite and another converter's for the same model. Goal: 1.02 of the other's.

    python tests/benchmarks/bench_converters.py MODELS [--onnx2tf ENV/bin/onnx2tf] [--other FOLDER]

MODELS is a folder of .onnx files or one of them. ``--onnx2tf`` converts with that tool; ``--other`` takes
what any converter made: FOLDER/NAME.tflite for MODELS/NAME.onnx. One thread, CPU time, interleaved. Ours is
compiled twice: with the source's layout of inputs and outputs, whose transposes are in our time and not in
that of a converter that gives NHWC, and, where the other's inputs are NHWC, like it (``build --io nhwc``).
The limit is for the latter. Of each ratio the minima's is printed, and the median of those within a round,
which decides.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.lowering.io_layouts import lay_out
from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.compiler.passes import run_passes
from edgekit.errors import EdgeKitError, ModelError
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.target.registry import compiler
from tests.benchmarks.interleaved import Timing, interleaved

GOAL = 1.02
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "centerface": {"input.1": (1, 3, 480, 640)},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 320, 320)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
    "efficientnet_lite0": {"image": (1, 3, 224, 224)},
    "kws_ref_model_float32": {"input_1": (1, 49, 10, 1)},
    "resnet8_cifar10_fp32": {"input_1": (1, 32, 32, 3)},
    "vww_96_float": {"input_1": (1, 96, 96, 3)},
}
"""Shapes for models whose own are dynamic or stale."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("models", type=Path)
    arguments.add_argument("--onnx2tf", type=Path, help="the tool's executable, in an environment of its own")
    arguments.add_argument("--other", type=Path, help="a folder of .tflite files, called like the models")
    arguments.add_argument("--seconds", type=float, default=5.0, help="for each model and repeat")
    arguments.add_argument("--repeats", type=int, default=3)
    given = arguments.parse_args()
    models = sorted(given.models.glob("*.onnx")) if given.models.is_dir() else [given.models]
    print(
        f"{'model':32}{'other ms':>9}{'like it':>9}{'ratio':>7}{'median':>8}"
        f"{'source':>9}{'ratio':>7}{'median':>8}  inputs"
    )
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                theirs = converted(model, Path(folder), given.onnx2tf, given.other)
                source, like = Path(folder) / "source.tflite", Path(folder) / "like.tflite"
                source.write_bytes(compiled(model, "nchw"))
                io = layout_of(source, theirs)
                like.write_bytes(compiled(model, io))
            except EdgeKitError as problem:
                print(f"{model.stem:32} not compared: {str(problem).splitlines()[0]}")
                continue
            files = {"other": theirs, "like": like, "source": source}
            rounds = []
            for _ in range(given.repeats):  # loaded anew: where memory happens to lie has its say
                calls = {name: invoker(file) for name, file in files.items()}
                rounds.append(interleaved(calls, seconds=given.seconds, clock=time.thread_time))
        other, ours, moved = (Timing.joined([r[name] for r in rounds]) for name in files)
        ratio = ours.ratio_to(other)
        print(
            f"{model.stem:32}{other.min_s * 1e3:9.3f}"
            f"{ours.min_s * 1e3:9.3f}{ours.min_s / other.min_s:7.3f}{ratio:8.3f}"
            f"{moved.min_s * 1e3:9.3f}{moved.min_s / other.min_s:7.3f}{moved.ratio_to(other):8.3f}"
            f"  {io}{'' if ratio <= GOAL else '  OVER'}"
        )


def compiled(model: Path, io: str) -> bytes:
    canonical = open_model(model, SHAPES.get(model.stem))
    run_passes(canonical)
    profile = find_profile("tflite")
    lay_out(canonical, io, [resolve(profile)])
    return bytes(compiler("tflite").compile_model(canonical, profile, "fp32").files["model.tflite"])


def layout_of(source: Path, other: Path) -> str:
    """``nhwc`` where the other file's inputs are not shaped as the source's, which ours are."""
    return "nchw" if input_shapes(source) == input_shapes(other) else "nhwc"


def input_shapes(file: Path) -> list[tuple[int, ...]]:
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(model_path=str(file)).get_input_details()
    return sorted(tuple(map(int, detail["shape"])) for detail in details)


def converted(model: Path, folder: Path, onnx2tf: Path | None, other: Path | None) -> Path:
    """The other converter's file.

    Raises:
        ModelError: it has none for this model.
    """
    if onnx2tf is None:
        found = sorted((other or folder).glob(f"**/{model.stem}.tflite"))
        found += sorted((other or folder).glob(f"**/{model.stem}_float32.tflite"))
        if not found:
            raise ModelError(f"there is no {model.stem}.tflite of another converter")
        return found[0]
    # Its option for shapes is not obeyed on its direct path, so it gets the model with the shapes fixed.
    fixed = folder / model.name
    fixed.write_bytes(save_model(open_model(model, SHAPES.get(model.stem))))
    done = subprocess.run(
        [str(onnx2tf), "-i", str(fixed), "-o", str(folder / "onnx2tf")],
        env={**os.environ, "PATH": f"{onnx2tf.parent}{os.pathsep}{os.environ['PATH']}"},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    file = folder / "onnx2tf" / f"{model.stem}_float32.tflite"
    if done.returncode != 0 or not file.exists():
        raise ModelError(f"onnx2tf failed: {(done.stderr or done.stdout).strip().splitlines()[-1][:120]}")
    return file


def invoker(file: Path) -> Any:
    """Set, invoke, get on random inputs, one thread."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(file), num_threads=1)
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    inputs = [
        (detail["index"], np.asarray(random.uniform(0, 1, detail["shape"]), detail["dtype"]))
        for detail in interpreter.get_input_details()
    ]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def call() -> list[Any]:
        for index, array in inputs:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return call


if __name__ == "__main__":
    main()

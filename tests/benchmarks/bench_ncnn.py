"""Two networks on ncnn beside ONNX Runtime: CPU time in turns, and SNR.

    python -m tests.benchmarks.bench_ncnn [--seconds 20] [--models efficientnet_lite0 yolox_nano]

Each network is built for ncnn and ort with `--precision auto`, on 48 of the shared photographs. Every variant
runs on one thread, in turns with the others; the CPU time of the quickest run counts. The SNR is of the worst
output against the reference, and the lowest on 16 further photographs.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import edgekit
from edgekit.compiler.evaluate.samples import read_sample
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.runtime.loading.golden_check import snr_db
from tests.benchmarks.interleaved import interleaved
from tests.conftest import SHARED

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"efficientnet_lite0": "imagenet500", "yolox_nano": "coco128"}
"""Network -> its photographs in shared/data."""
CALIBRATED_ON, COMPARED_ON = 48, 16


def photographs(name: str) -> list[Path]:
    """Return photographs for a network, in an order that does not depend on the file system."""
    paths = sorted((SHARED / "data" / MODELS.get(name, "coco128")).rglob("*.jpg"))
    return paths[: CALIBRATED_ON + COMPARED_ON]


def compare(name: str, seconds: float) -> list[str]:
    """Return a row for each variant: SNR in dB, CPU time in ms, ratio to ort-fp32, size in MB."""
    path, card = SHARED / "models" / f"{name}.onnx", load_card(ROOT / "samples/cards" / f"{name}.toml")
    model = open_model(path, card.shapes())
    samples = [read_sample(photo, signature(model)[0], card) for photo in photographs(name)]
    calibration, others = samples[:CALIBRATED_ON], samples[CALIBRATED_ON:]
    bundle = edgekit.build(path, targets=["ort", "ncnn"], precision="auto", card=card, samples=calibration)
    reference = Reference(model)
    expected = [reference.run(feeds) for feeds in others]
    with ExitStack() as stack:
        sessions = {
            variant.name: stack.enter_context(Session(bundle, variant=variant.name, strict=True, threads=1))
            for variant in bundle.variants
            if variant.usable
        }
        calls = {key: partial(session.runner.run, others[0]) for key, session in sessions.items()}
        timings = interleaved(calls, seconds=seconds, clock=time.thread_time)
        files = {variant.name: variant.files for variant in bundle.variants}
        rows = []
        for key, session in sessions.items():
            outputs = [session.run(feeds) for feeds in others]
            worst = min(
                (db for right, made in zip(expected, outputs, strict=True) for output in right
                 if (db := snr_db(right[output], made[output])) is not None),
                default=float("inf"),
            )  # fmt: skip
            size_mb = sum(bundle.size_bytes(entry) for entry in files[key].values()) / 1e6
            ratio = timings[key].ratio_to(timings["ort-fp32"])
            rows.append(
                f"{name:20} {key:18} {worst:6.1f} dB {1000 * timings[key].min_s:7.2f} ms "
                f"{ratio:5.2f} {size_mb:6.2f} MB"
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    given = parser.parse_args()
    print(f"{'network':20} {'variant':18} {'SNR':>9} {'CPU':>10} {'ratio to ort-fp32':>5} size")
    for name in given.models:
        print("\n".join(compare(name, given.seconds)), flush=True)


if __name__ == "__main__":
    main()

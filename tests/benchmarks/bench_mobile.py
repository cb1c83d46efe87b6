"""One bundle of a detector for Android, iPhone and Jetson, calibrated once, and exported for both phones.

    python -m tests.benchmarks.bench_mobile [--photographs 50] [--size 416] [--precision int8] [FOLDER]

YOLOX-nano with photographs of COCO128. Prints the report, for each profile the variant that is advised there
with its size and accuracy, and the files of both exports. The time is the processor time of the build and its
child process.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import edgekit
from edgekit.bundle.advice import advised, stood_in
from edgekit.bundle.report import lowest_snr
from edgekit.errors import UsageError
from edgekit.processing import load_card
from edgekit.release.export.export import export_variant
from edgekit.system.formats.plain_text import size, table
from tests.conftest import SHARED

CARD = Path(__file__).resolve().parents[2] / "samples/cards/yolox_nano.toml"
PROFILES = ("android-arm64", "iphone-12", "jetson-orin-nano")
PHONES = PROFILES[:2]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photographs", type=int, default=50)
    parser.add_argument("--size", type=int, default=416)
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(given, given.folder or Path(temporary))


def measure(given: argparse.Namespace, folder: Path) -> None:
    card = load_card(CARD)
    shape = (1, 3, given.size, given.size)
    card = replace(card, inputs={name: replace(image, shape=shape) for name, image in card.inputs.items()})
    photographs = sorted((SHARED / "data/coco128/train/images").glob("*.jpg"))[: given.photographs]
    chosen = folder / "photographs"
    chosen.mkdir()
    for path in photographs:
        (chosen / path.name).symlink_to(path)
    bundle = edgekit.build(
        SHARED / "models/yolox_nano.onnx", targets=list(PROFILES), card=card, shapes={"images": shape},
        samples=str(chosen / "*.jpg"), precision=given.precision, time_budget=given.budget,
        io={"images": "nhwc@android-arm64"},
    )  # fmt: skip
    path = bundle.save(folder / "detector.edgekit")
    times = os.times()
    print(bundle.report)
    print(f"\n{len(photographs)} photographs, {size(path.stat().st_size)}, processor time "
          f"{sum(times[:4]):.0f} s")  # fmt: skip
    rows = []
    for variant in advised(bundle.variants):
        score = variant.evidence.get("agreement") or {}
        rows.append((
            variant.profile, variant.name, size(variant.evidence["size_bytes"]), lowest_snr(variant),
            f"{score['metric']} {score['value']:.3f}" if score.get("value") is not None else "-",
            "not run" if stood_in(variant) else "run here",
        ))  # fmt: skip
    print("\n".join(table(("profile", "advised", "size", "SNR", "agreement", "on its engine"), rows)))
    for variant in advised(bundle.variants):
        for app in (True, False) if variant.profile in PHONES else ():
            place = folder / variant.profile / ("app" if app else "plain")
            try:
                files = export_variant(bundle, variant.name, place, app=app)
                outcome = ", ".join(sorted({file.relative_to(place).parts[0] for file in files}))
            except UsageError as problem:
                outcome = f"refused: {problem}"
            print(f"  export{' --app' if app else ''} {variant.name}: {outcome}")


if __name__ == "__main__":
    main()

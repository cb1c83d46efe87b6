"""No channel of an int8 variant is lost: random networks whose outputs join numbers of different size.

    python -m tests.benchmarks.bench_unlike_channels [COUNT] [--first SEED] [-t TARGET]...

Prints each accurate variant with a channel below 12 dB on inputs that the build has not seen, then how many
were accurate, and how many of them lost a channel; exits with 1 if some did. Accurate is what a build
verifies, and what it rejects for its time alone, which depends on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import edgekit
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.runtime import Session
from tests.benchmarks.unlike_channels import draw, lost_channels

SAMPLES, UNSEEN = 64, 32
SEARCH_SECONDS = 4
TOO_SLOW = "x the time of "


def losses(folder: Path, seed: int, targets: list[str], counts: Counter[str]) -> list[str]:
    """Build the network of a seed, and describe each verified variant that lost a channel."""
    network = draw(folder, seed)
    samples = [network.feeds(1000 * seed + index) for index in range(SAMPLES)]
    bundle = edgekit.build(
        network.path,
        targets=targets,
        precision="int8",
        samples=samples,
        force=True,
        trusted=True,
        time_budget=SEARCH_SECONDS,
    )
    unseen = [network.feeds(1000 * seed + SAMPLES + index) for index in range(UNSEEN)]
    reference = Reference(open_model(network.path))
    expected = [reference.run(feeds) for feeds in unseen]
    found = []
    for variant in bundle.variants:
        if "int8" not in variant.name:
            continue
        _, _, objection = variant.status.partition("shipped by force: ")
        is_accurate = variant.status.startswith("verified") and (not objection or TOO_SLOW in objection)
        counts["accurate" if is_accurate else "rejected"] += 1
        if not is_accurate:
            continue
        with Session(bundle, variant=variant.name, strict=True) as session:
            actual = [session.run(feeds) for feeds in unseen]
        if lost := lost_channels(network, expected, actual):
            counts["lost"] += 1
            figures = ", ".join(f"{one:.1f}" for one in lost[:4])
            found.append(f"{seed} {variant.name}: {len(lost)} channels below 12 dB: {figures}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("-t", dest="targets", action="append")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.count):
            targets = given.targets or ["ort", "openvino", "tflite", "coreml"]
            for line in losses(Path(folder), seed, targets, counts):
                print(line, flush=True)
    print(
        f"{given.count} networks: {counts['accurate']} accurate int8 variants,"
        f" {counts['lost']} lost a channel; {counts['rejected']} rejected"
    )
    return int(counts["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())

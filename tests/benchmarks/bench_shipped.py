"""Whether a build ships a variant that is below its limit on samples that no build has seen.

    python -m tests.benchmarks.bench_shipped [--seed N] [--folder DIR] [--target TARGET]... [NETWORK...]

Without names it draws six of the scoreboard's pool (tests/benchmarks/scoreboard/networks.py) by a random
seed, which it prints. Each network is built with its calibration samples as a user would, in int8. Every int8
variant that the build ships is judged on the held-out samples by the default limits. "?" behind the build's
score: the build says that its samples do not prove it.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from edgekit.bundle import Bundle
from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Fidelity, source_evaluator
from edgekit.compiler.model.onnx_file import open_model
from edgekit.runtime import Session
from tests.benchmarks.scoreboard.networks import NETWORKS, Network, card_of, draw, prepare, samples_of

TARGETS = ("ort", "tflite", "openvino")
HEAD = f"{'network':22}{'variant':24}{'metric':20}{'build (low)':>15}{'held out':>9}{'low':>7}  verdict"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_shipped", description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], metavar="NETWORK")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--folder", type=Path, help="keeps the prepared networks")
    parser.add_argument("--target", action="append", choices=TARGETS)
    options = parser.parse_args()
    networks = [NETWORKS[name] for name in options.networks] or draw(options.seed)
    drawn = "" if options.networks else f" (seed {options.seed})"
    print(f"{', '.join(network.name for network in networks)}{drawn}\n{HEAD}", flush=True)
    below = silent = shipped = 0
    with TemporaryDirectory() as temporary:
        for network in networks:
            folder = (options.folder or Path(temporary)) / network.name
            prepare(network, folder)
            for row, is_below, is_silent in judge(network, folder, options.target or TARGETS):
                print(row, flush=True)
                shipped, below = shipped + 1, below + is_below
                silent += is_below and is_silent
    print(
        f"{shipped} int8 variants shipped, {below} of them below the limit on held-out samples, {silent} "
        "without a word of the build"
    )


def judge(
    network: Network, folder: Path, targets: list[str] | tuple[str, ...]
) -> Iterator[tuple[str, bool, bool]]:
    """Build a network; yield a row for each int8 variant that the build ships, whether it is below its limit
    on the held-out samples, and whether the build says that it is proved."""
    before = cpu_s()
    path, ended = build(folder, targets)
    used = cpu_s() - before
    if not path.exists():
        print(f"{network.name:22}no bundle: {ended.splitlines()[-1]}", flush=True)
        return
    bundle = Bundle.open(path)
    samples = samples_of(folder / "heldout")
    judged = source_evaluator(open_model(folder / "source.onnx"), card_of(folder), samples)
    for variant in bundle.variants:
        if not variant.precision.startswith("int8"):
            continue
        if not variant.usable:
            print(f"{network.name:22}{variant.name:24}not shipped: {variant.reason[:90]}", flush=True)
            continue
        with Session(bundle, variant=variant.name, strict=True, threads=1) as session:
            fidelity = judged.evaluate([session.run(sample) for sample in samples], prove=True)
        missed = Goal().missed(fidelity)
        is_proved = "not_proved" not in variant.evidence.get("agreement", {})
        yield as_row(network, variant.name, variant.evidence, fidelity, missed), bool(missed), is_proved
    print(f"{network.name:22}{used:.0f} CPU s", flush=True)


def as_row(network: Network, name: str, evidence: object, fidelity: Fidelity, missed: str) -> str:
    agreement = evidence.get("agreement") if isinstance(evidence, dict) else None
    built = "-"
    if agreement:
        low = f" ({agreement['low']:.3f})" if "low" in agreement else ""
        built = f"{agreement['value']:.3f}{low}{'?' * ('not_proved' in agreement)}"
    low = "" if fidelity.proof is None else f"{fidelity.proof.low:.3f}"
    score = fidelity.score
    return (
        f"{network.name:22}{name:24}{score.metric:20}{built:>15}{score.value:>9.3f}{low:>7}  "
        f"{missed or Goal().not_proved(fidelity) or 'passes'}"
    )


def build(folder: Path, targets: list[str] | tuple[str, ...]) -> tuple[Path, str]:
    """Build a network; return the bundle's path and the log."""
    path = folder / "shipped.edgekit"
    options = [part for target in targets for part in ("-t", target)]
    command = [
        sys.executable, "-m", "edgekit", "build", "source.onnx", "--card", "card.toml", "--precision", "int8",
        "--samples", "calibration", *options, "-o", path.name,
    ]  # fmt: skip
    path.unlink(missing_ok=True)
    ended = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return path, ended.stderr.strip() or f"exit code {ended.returncode}"


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

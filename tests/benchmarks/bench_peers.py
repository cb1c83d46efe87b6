"""int8 by EdgeKit and by other tools: accuracy, latency, and what making it costs; network by network.

    python tests/benchmarks/bench_peers.py make FOLDER --environments ENVS [--only YOLOX-nano] [--seconds 60]
    python tests/benchmarks/bench_peers.py time FOLDER [--only ...] [--seconds 20] [--markdown FILE]

``make`` is slow: it fetches each network (peer_networks.py), writes its samples, and has every maker quantize
it in a process of its own (peer_makers.py); the other tools are installed by name into ENVS. What is there
already is not made again. All makers get the same 64 samples; EdgeKit sets more than half of them aside,
to choose and to test. ``time`` is short, and can be repeated on a quiet machine: the artifacts of one engine
run in turns in one process on one thread, in random order; CPU time, the least of the rounds in which fp32
was at most QUIET of its best. They are scored on samples that no maker has seen, by the product's metric of
the card's task, against the float model on ONNX Runtime.

A peer that is as fast as ours and more accurate is marked.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.evaluate.timing import OWN_TIME
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EdgeKitError
from edgekit.system.cpu import cpu_name, instruction_sets
from edgekit.target.contract import Runner
from edgekit.target.registry import engine, open_ready
from edgekit.tensor_spec import Array
from tests.benchmarks.peer_makers import PEERS, Made, load_made, make_ours, make_parent, make_peer
from tests.benchmarks.peer_networks import NETWORKS, Network, card_of, prepare, samples_of

QUIET = 1.02
"""A round counts while fp32 is at most this multiple of its best: else another program was in the way."""
LEAST_ROUNDS = 10
EQUAL = 1.02
"""Times that differ by less are equal: what two runs of the same artifacts differ by."""
CHOSEN_WITH = "\\*"
"""Behind the name of a network that a choice in the quantizer was made with."""
FAILURE_LENGTH = 120
"""Characters of an error in the table, the last ones: what went before is where it was seen."""


@dataclass(frozen=True)
class Row:
    """One artifact.

    Attributes:
        made: What made it.
        found: Its fidelity; None if it does not run.
        ms: CPU time of a run, milliseconds.
        ratio: The same over fp32's.
        failure: Why it does not run.
    """

    made: Made
    found: Fidelity | None = None
    ms: float = math.nan
    ratio: float = math.nan
    failure: str = ""


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("phase", choices=("make", "time"))
    arguments.add_argument("folder", type=Path, help="for the artifacts")
    arguments.add_argument("--environments", type=Path, help="folder for the other tools' environment")
    arguments.add_argument("--only", nargs="*", default=[each.name for each in NETWORKS])
    arguments.add_argument("--engines", nargs="*", default=list(PEERS), choices=list(PEERS))
    arguments.add_argument("--seconds", type=float, help="of our search (60), of timing for each engine (20)")
    arguments.add_argument("--again", nargs="*", default=[], help="makers to run again, e.g. ours")
    arguments.add_argument("--markdown", type=Path, help="file for the table")
    given = arguments.parse_args()
    chosen = [network for network in NETWORKS if network.name in given.only]
    if given.phase == "make":
        if given.environments is None:
            arguments.error("make needs --environments")
        for network in chosen:
            make(network, given.folder, given.environments, given.engines, given.seconds or 60, given.again)
        return
    lines = [
        head(given.engines),
        "",
        "| network, metric | engine | by | metric | SNR dB | ms | time | to make | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for network in chosen:
        if (given.folder / network.name / "source.onnx").is_file():
            lines += timed(network, given.folder / network.name, given.engines, given.seconds or 20)
    print("\n".join(lines))
    if given.markdown:
        given.markdown.write_text("\n".join(lines) + "\n", "utf-8")


def make(
    network: Network,
    folder: Path,
    environments: Path,
    engines: Sequence[str],
    seconds: float,
    again: Sequence[str],
) -> None:
    """Every maker's artifact of a network; what fails is noted, and the rest goes on."""
    place = folder / network.name
    try:
        if not (place / "heldout").is_dir():
            prepare(network, place)
    except (EdgeKitError, OSError) as problem:
        shutil.rmtree(place, ignore_errors=True)
        print(f"{network.name}: {str(problem).splitlines()[0]}", file=sys.stderr)
        return
    for name in engines:
        makers: dict[str, Callable[[], Made]] = {
            "fp32": partial(make_parent, place, name),
            "ours": partial(make_ours, place, name, seconds),
            **{peer.name: partial(make_peer, place, name, peer, environments) for peer in PEERS[name]},
        }
        for maker, run in makers.items():
            if maker not in again and (place / name / maker / "made.json").is_file():
                continue
            try:
                made = run()
            except EdgeKitError as problem:
                print(f"{network.name} {name} {maker}: {str(problem).splitlines()[0]}", flush=True)
                break  # without fp32 there is nothing to compare with
            print(f"{network.name} {name} {maker}: {costs(made)} {made.failure}", flush=True)


def timed(network: Network, folder: Path, engines: Sequence[str], seconds: float) -> list[str]:
    """The rows of a network."""
    source, card = open_model(folder / "source.onnx"), card_of(folder)
    held_out = samples_of(folder / "heldout")
    reference = Reference(source, optimize=True)
    expected = [reference.run(sample) for sample in held_out]
    judge = Evaluator(card, expected, placed=text_placements(card, held_out))
    title = f"{network.name}{CHOSEN_WITH if network.chosen_with else ''}, {judge.metric}"
    lines = []
    for name in engines:
        rows = measured(name, folder, held_out, judge, seconds)
        own = next((row for row in rows if row.made.name == "ours"), None)
        lines += [f"| {title} | {name} | {cells(row, own)} |" for row in rows]
        print("\n".join(lines[-len(rows) :]), file=sys.stderr, flush=True)
    return lines


def measured(
    name: str, folder: Path, held_out: Sequence[Mapping[str, Array]], judge: Evaluator, seconds: float
) -> list[Row]:
    """The rows of an engine, fp32 first."""
    inputs, outputs = signature(open_model(folder / "source.onnx"))
    makers = ["fp32", "ours", *(peer.name for peer in PEERS[name])]
    rows: dict[str, Row] = {}
    with ExitStack() as stack:
        runners: dict[str, Runner] = {}
        for maker in makers:
            place = folder / name / maker
            if not (place / "made.json").is_file():
                continue
            made = load_made(place)
            rows[maker] = Row(made, failure=made.failure)
            if made.failure:
                continue
            try:
                files = {file: place / file for file in made.files}
                runner = open_ready(engine(name), files, inputs, outputs, made.options, 1)
                stack.enter_context(closing(runner))
                found = judge.evaluate([runner.run(sample) for sample in held_out])
            except EdgeKitError as problem:
                rows[maker] = Row(made, failure=" ".join(str(problem).split())[-FAILURE_LENGTH:])
                continue
            runners[maker], rows[maker] = runner, Row(made, found)
        if "fp32" in runners:
            times = in_turns(runners, held_out[0], seconds)
            for maker, own in times.items():
                row = rows[maker]
                rows[maker] = Row(row.made, row.found, 1000 * own, own / times["fp32"])
    return list(rows.values())


def in_turns(runners: Mapping[str, Runner], sample: Mapping[str, Array], seconds: float) -> dict[str, float]:
    """CPU seconds of a run of each, the least of the quiet rounds; fp32 says which are."""
    rounds: list[dict[str, float]] = []
    order, shuffled = list(runners), random.Random(0)
    once = {}
    for name, runner in runners.items():
        runner.run(sample)
        started = OWN_TIME()
        runner.run(sample)
        once[name] = max(OWN_TIME() - started, 1e-6)
    repeats = {name: max(1, int(0.001 / once[name])) for name in runners}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < LEAST_ROUNDS:
        shuffled.shuffle(order)
        own = {}
        for name in order:
            runner, count = runners[name], repeats[name]
            started = OWN_TIME()
            for _ in range(count):
                runner.run(sample)
            own[name] = (OWN_TIME() - started) / count
        rounds.append(own)
    rounds.sort(key=lambda own: own["fp32"])
    quiet = [own for own in rounds if own["fp32"] <= QUIET * rounds[0]["fp32"]]
    used = quiet if len(quiet) >= LEAST_ROUNDS else rounds[: max(LEAST_ROUNDS, len(rounds) // 4)]
    return {name: min(own[name] for own in used) for name in runners}


def beaten(row: Row, own: Row | None) -> bool:
    """Whether a peer is as fast as ours and more accurate."""
    if own is None or own.found is None or row.found is None or row.made.name in ("fp32", "ours"):
        return False
    return row.ratio <= EQUAL * own.ratio and row.found.rank > own.found.rank


def cells(row: Row, own: Row | None) -> str:
    made = row.made
    if row.found is None:
        return f"{made.name} | - | - | - | - | {costs(made)} | {row.failure}"
    score = row.found.score
    rejected = f"a build rejects it: {made.note}" if made.note else ""
    said = "as fast as ours, and more accurate" if beaten(row, own) else rejected
    return (
        f"{made.name} | {score.value:.3f} | {row.found.snr_db:.1f} | {row.ms:.3g} "
        f"| {row.ratio:.2f} | {costs(made)} | {said}"
    )


def costs(made: Made) -> str:
    memory = "" if made.peak_mb is None else f", {made.peak_mb:.0f} MB"
    return "" if made.cpu_s is None else f"{made.cpu_s:.0f} s{memory}"


def head(engines: Sequence[str]) -> str:
    """The processor with its instruction sets, and the engines."""
    has = ", ".join(instruction_sets()) or "no instruction sets known"
    versions = ", ".join(engine(name).engine_version() for name in engines)
    return f"{cpu_name()} ({has}); {versions}; one thread, CPU time"


if __name__ == "__main__":
    main()

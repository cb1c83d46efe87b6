"""One cell of the scoreboard: the entries of a network on an engine, made, scored and timed in turns."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit._version import __version__
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity
from edgekit.compiler.evaluate.labels import Label
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EngineError
from edgekit.system.cpu import cpu_name, instruction_sets, usable_cores
from edgekit.target.registry import engine
from tests.benchmarks.scoreboard.makers import MAKERS, OURS, Made, Maker, Workshop, load_made, make
from tests.benchmarks.scoreboard.networks import card_of, samples_of

THREADS = (1, 2)
BURST_S = 0.02
LEAST_ROUNDS = 8
QUARTILE = 25
TWIN = "the same again"
"""A second process of EdgeKit's int8, or of the first entry that runs: what its time differs by is noise."""
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Turns:
    """Times of the entries of a cell on so many threads.

    Attributes:
        wall_ms: By entry, milliseconds by the clock: the lower quartile over the rounds of a burst's
            median.
        cpu_ms: The same in CPU time of the process.
        rounds: Number of rounds.
    """

    wall_ms: Mapping[str, float]
    cpu_ms: Mapping[str, float]
    rounds: int


def run_cell(
    folder: Path,
    name: str,
    workshop: Workshop,
    *,
    makers: Sequence[Maker] = (),
    skip: Sequence[str] = (),
    again: Sequence[str] = (),
    seconds: float = 8.0,
    labels: Sequence[Label] | None = None,
) -> dict[str, Any]:
    """Make what is not there yet, score and time all of it, and return the result of the cell.

    Args:
        folder: The network's, as ``prepare`` has written it.
        name: ``ort``, ``openvino`` or ``tflite``.
        workshop: Environments and limits.
        makers: Entries to compare; by default those of MAKERS.
        skip: Names of makers that are left out, and recorded as not run.
        again: Names of makers or entries that are made anew.
        seconds: Seconds of timing for each number of threads.
        labels: Labels of the held-out samples, or None.
    """
    chosen = [maker for maker in makers or MAKERS[name] if maker.name not in skip]
    made: dict[str, Made] = {}
    for maker in chosen:
        old = load_made(folder / name / maker.entry)
        remade = old is None or maker.name in again or maker.entry in again
        made[maker.entry] = make(maker, folder, name, workshop) if old is None or remade else old
        if remade:
            now = made[maker.entry]
            print(f"{folder.name} {name} {maker.entry}: {now.wall_s:.0f} s {now.failure}", flush=True)
    entries: dict[str, dict[str, Any]] = {
        maker.entry: described(maker, made[maker.entry], folder / name) for maker in chosen
    }
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    judge = Judge(folder, labels)
    turns: dict[int, Turns] = {}
    with tempfile.TemporaryDirectory() as outputs:
        for threads in THREADS:
            if threads > usable_cores():
                continue
            with started(folder, name, entries, threads) as children:
                if threads == THREADS[0]:
                    for entry, child in list(children.items()):
                        score(entry, child, children, entries, judge, Path(outputs))
                turns[threads] = in_turns(children, seconds)
    twin: dict[str, float] = {}
    for threads, timed in turns.items():
        for entry, fields in entries.items():
            if entry in timed.wall_ms:
                fields[f"p50_ms_{threads}"] = round(timed.wall_ms[entry], 4)
                fields[f"cpu_ms_{threads}"] = round(timed.cpu_ms[entry], 4)
        clock = dict(timed.cpu_ms if threads == 1 else timed.wall_ms)
        if TWIN in clock:
            twin[str(threads)] = round(abs(clock.pop(TWIN) / clock[twin_of(clock)] - 1), 4)
    return {
        "network": folder.name,
        "engine": name,
        "engine_version": engine(name).engine_version(),
        "edgekit": __version__,
        "processor": cpu_name(),
        "isa": list(instruction_sets()),
        "cores": usable_cores(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": None if load is None else round(load, 2),
        "metric": judge.evaluator.metric,
        "samples": len(judge.expected),
        "rounds": {str(threads): timed.rounds for threads, timed in turns.items()},
        "twin": twin,
        "search_s": workshop.search_s,
        "not_run": [maker.entry for maker in makers or MAKERS[name] if maker.name in skip],
        "entries": list(entries.values()),
    }


def described(maker: Maker, made: Made, place: Path) -> dict[str, Any]:
    """Return what is known of an entry before it is run."""
    size = sum((place / maker.entry / file).stat().st_size for file in made.files)
    return {
        "entry": maker.entry,
        "maker": maker.name,
        "precision": maker.precision,
        "failure": made.failure,
        "note": made.note,
        "made": made.date,
        "build_s": made.wall_s,
        "build_cpu_s": made.cpu_s,
        "build_peak_mb": made.peak_mb,
        "size_kb": round(size / 1024),
        "versions": made.versions,
    }


class Judge:
    """Scores an entry's outputs against the float model's, which ONNX Runtime computes."""

    def __init__(self, folder: Path, labels: Sequence[Label] | None) -> None:
        source = open_model(folder / "source.onnx")
        inputs, outputs = signature(source)
        specs = {
            side: [[spec.name, spec.dtype, list(spec.shape)] for spec in values]
            for side, values in (("inputs", inputs), ("outputs", outputs))
        }
        (folder / "specs.json").write_text(json.dumps(specs), "utf-8")
        samples, card = samples_of(folder / "heldout"), card_of(folder)
        reference = Reference(source, optimize=True)
        self.expected = [reference.run(sample) for sample in samples]
        self.evaluator = Evaluator(card, self.expected, labels, placed=text_placements(card, samples))

    def fidelity(self, outputs: Path) -> Fidelity:
        return self.evaluator.evaluate(samples_of(outputs))


class Child:
    """Process of one entry."""

    def __init__(self, folder: Path, name: str, entry: str, threads: int, log: Path) -> None:
        module = "tests.benchmarks.scoreboard.entry_child"
        paths = os.pathsep.join([str(ROOT), str(ROOT / "targets"), os.environ.get("PYTHONPATH", "")])
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder), name, entry, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": paths},
            )

    def answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            EngineError: the process ended, or its engine refused the artifact.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"its process ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise EngineError(answer["failure"])
        return answer

    def ask(self, request: str) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            EngineError: the process ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError(f"its process ended with {self._process.wait()}") from None
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def started(
    folder: Path, name: str, entries: Mapping[str, dict[str, Any]], threads: int
) -> Iterator[dict[str, Child]]:
    """Start a process for each entry that has an artifact, and one more of the twin; what does not start has
    its failure in ``entries``."""
    with ExitStack() as stack:
        ready = [entry for entry, fields in entries.items() if not fields["failure"]]
        artifacts = {entry: entry for entry in ready} | ({TWIN: twin_of(ready)} if ready else {})
        children = {
            entry: Child(folder, name, artifact, threads, folder / name / artifact / f"run-{threads}.log")
            for entry, artifact in artifacts.items()
        }
        for entry, child in list(children.items()):
            stack.callback(child.close)
            try:
                child.answer()
            except EngineError as problem:
                if entry != TWIN:
                    entries[entry]["failure"] = f"does not run: {problem}"
                del children[entry]
        yield children


def twin_of(entries: Collection[str]) -> str:
    """Return the entry whose artifact the twin runs."""
    own = Maker(OURS, "int8").entry
    return own if own in entries else next(iter(entries))


def score(
    entry: str,
    child: Child,
    children: dict[str, Child],
    entries: Mapping[str, dict[str, Any]],
    judge: Judge,
    folder: Path,
) -> None:
    """Have an entry run the held-out samples, and add its accuracy and memory; drop it if it fails."""
    if entry == TWIN:
        return
    place = folder / entry
    place.mkdir()
    fields = entries[entry]
    try:
        fields |= child.ask(f"score {place}")
        fidelity = judge.fidelity(place)
    except (EngineError, ValueError) as problem:
        fields["failure"] = f"does not run: {problem}"
        if twin_of(children) == entry:
            children.pop(TWIN, None)
        del children[entry]
        return
    has_metric = not fidelity.score.unit
    fields["metric"] = rounded(fidelity.score.value) if has_metric else None
    fields["snr_db"] = rounded(fidelity.snr_db)
    fields["labelled"] = None if fidelity.task is None else fidelity.task.as_json()


def rounded(value: float) -> float | str:
    """Return a value for JSON, which has no infinities."""
    return round(float(value), 4) if np.isfinite(value) else str(value)


def in_turns(children: Mapping[str, Child], seconds: float) -> Turns:
    """Time bursts of all entries, round after round in random order."""
    rounds: list[dict[str, dict[str, float]]] = []
    order, shuffled = list(children), random.Random(0)
    end = time.perf_counter() + seconds
    while children and (time.perf_counter() < end or len(rounds) < LEAST_ROUNDS):
        shuffled.shuffle(order)
        rounds.append({entry: children[entry].ask(f"burst {BURST_S}") for entry in order})
    quartiles = {
        clock: {
            entry: 1000 * float(np.percentile([times[entry][clock] for times in rounds], QUARTILE))
            for entry in children
        }
        for clock in ("wall_s", "cpu_s")
    }
    return Turns(quartiles["wall_s"], quartiles["cpu_s"], len(rounds))

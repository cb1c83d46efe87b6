"""One cell of the scoreboard: the entries of a network on an engine, made, scored and timed in turns."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgekit._version import __version__
from edgekit.compiler.evaluate.labels import Label
from edgekit.errors import EngineError
from edgekit.system.cpu import cpu_name, instruction_sets, usable_cores
from edgekit.target.registry import engine
from tests.benchmarks.scoreboard.judges import Judge, TextJudge, judge_of, write_specs
from tests.benchmarks.scoreboard.makers import (
    OURS,
    PATHS,
    Made,
    Maker,
    Workshop,
    is_text,
    load_made,
    make,
    makers_of,
)

THREADS = (1, 2)
BURST_S = 0.02
LEAST_ROUNDS = 8
LEAST_TEXT_ROUNDS = 3
QUARTILE = 25
FIELDS = {
    "wall_s": "p50_ms_{}",
    "cpu_s": "cpu_ms_{}",
    "read_wall_s": "read_ms_{}",
    "read_cpu_s": "read_cpu_ms_{}",
    "token_wall_s": "token_ms_{}",
    "token_cpu_s": "token_cpu_ms_{}",
}
"""Clock -> field of an entry, by the number of threads."""
TWIN = "the same again"
"""A second process of EdgeKit's int8, or of the first entry that runs: what its time differs by is noise."""


@dataclass(frozen=True)
class Turns:
    """Times of the entries of a cell on so many threads.

    Attributes:
        times_ms: Clock -> entry -> milliseconds, the lower quartile over the rounds of a burst's median.
            ``wall_s`` is the clock, ``cpu_s`` CPU time of the process; with ``read_`` or ``token_`` in front
            it is that of a language model's prompt, or of a token that it writes.
        rounds: Number of rounds.
    """

    times_ms: Mapping[str, Mapping[str, float]]
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
    counts: Sequence[int] = THREADS,
    labels: Sequence[Label] | None = None,
) -> dict[str, Any]:
    """Make what is not there yet, score and time all of it, and return the result of the cell.

    Args:
        folder: The network's, as ``prepare`` has written it.
        name: ``ort``, ``openvino`` or ``tflite``.
        workshop: Environments and limits.
        makers: Entries to compare; by default those of ``makers_of``.
        skip: Names of makers that are left out, and recorded as not run.
        again: Names of makers or entries that are made anew.
        seconds: Seconds of timing for each number of threads.
        counts: Numbers of threads; the first one scores, too.
        labels: Labels of the held-out samples, or None.
    """
    makers = makers or makers_of(folder, name)
    chosen = [maker for maker in makers if maker.name not in skip]
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
    write_specs(folder)
    judge = cache(lambda: judge_of(folder, labels))
    runners = {
        maker.entry: (workshop.python(maker.runs_in), maker.runner or ("edgekit" if is_text(folder) else ""))
        for maker in chosen
    }
    engine_versions = (engine(name).engine_version(), __version__)
    least_rounds = LEAST_TEXT_ROUNDS if is_text(folder) else LEAST_ROUNDS
    turns: dict[int, Turns] = {}
    for threads in counts:
        if threads > usable_cores():
            continue
        with started(folder, name, entries, threads, runners) as children:
            if threads == counts[0]:
                for entry, child in list(children.items()):
                    stored = folder / name / entry / "score.json"
                    environment = Path(runners[entry][0]).parents[1].name if entry in runners else ""
                    score(entry, child, children, entries, judge, stored, [*engine_versions, environment])
            turns[threads] = in_turns(children, seconds, least_rounds)
    twin: dict[str, float] = {}
    for threads, timed in turns.items():
        for clock, times_ms in timed.times_ms.items():
            for entry in times_ms.keys() & entries.keys():
                entries[entry][FIELDS[clock].format(threads)] = round(times_ms[entry], 4)
        times = dict(timed.times_ms.get("cpu_s" if threads == 1 else "wall_s", {}))
        if TWIN in times:
            twin[str(threads)] = round(abs(times.pop(TWIN) / times[twin_of(times)] - 1), 4)
    judged = {
        key: next(filter(None, [fields.pop(key, None) for fields in entries.values()]), None)
        for key in ("metric_name", "samples")
    }
    return {
        "network": folder.name,
        "engine": name,
        "engine_version": engine_versions[0],
        "edgekit": __version__,
        "processor": cpu_name(),
        "isa": list(instruction_sets()),
        "cores": usable_cores(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": None if load is None else round(load, 2),
        "metric": judged["metric_name"] or "",
        "samples": judged["samples"] or 0,
        "rounds": {str(threads): timed.rounds for threads, timed in turns.items()},
        "twin": twin,
        "search_s": workshop.search_s,
        "not_run": [maker.entry for maker in makers if maker.name in skip],
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


class Child:
    """Process of one entry."""

    def __init__(self, folder: Path, name: str, entry: str, threads: int, python: str, runner: str) -> None:
        module = "tests.benchmarks.scoreboard.entry_child"
        log = folder / name / entry / f"run-{threads}.log"
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, "-m", module, str(folder), name, entry, str(threads), runner],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": PATHS},
            )

    def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"its process ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise EngineError(answer["failure"])
        return answer

    def ask(self, request: str) -> dict[str, Any]:
        """Send a request and return its answer."""
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
    folder: Path,
    name: str,
    entries: Mapping[str, dict[str, Any]],
    threads: int,
    runners: Mapping[str, tuple[str, str]],
) -> Iterator[dict[str, Child]]:
    """Start a process for each entry that has an artifact, and one more of the twin; what does not start has
    its failure in ``entries``. ``runners`` has the Python of each entry, and what runs a language model."""
    with ExitStack() as stack:
        ready = [entry for entry, fields in entries.items() if not fields["failure"]]
        artifacts = {entry: entry for entry in ready} | ({TWIN: twin_of(ready)} if ready else {})
        children = {
            entry: Child(folder, name, artifact, threads, *runners[artifact])
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
    judge: Callable[[], Judge | TextJudge],
    stored: Path,
    versions: Sequence[str],
) -> None:
    """Add an entry's accuracy and memory; drop it if it fails.

    It runs the held-out samples, unless ``stored`` has the score of this artifact by the same versions.
    """
    if entry == TWIN:
        return
    fields = entries[entry]
    if stored.is_file():
        known = json.loads(stored.read_text("utf-8"))
        if known["versions"] == versions:
            fields |= known["score"]
            return
    try:
        with tempfile.TemporaryDirectory() as outputs:
            fields |= (memory := child.ask(f"score {outputs}"))
            fidelity = judge().fidelity(Path(outputs))
    except (EngineError, ValueError) as problem:
        fields["failure"] = f"does not run: {problem}"
        if twin_of(children) == entry:
            children.pop(TWIN, None)
        del children[entry]
        return
    has_metric = not fidelity.score.unit
    figures = {
        "metric": rounded(fidelity.score.value) if has_metric else None,
        "snr_db": rounded(fidelity.snr_db),
        "labelled": None if fidelity.task is None else fidelity.task.as_json(),
        "metric_name": judge().metric,
        "samples": judge().samples,
    }
    fields |= figures
    stored.write_text(json.dumps({"versions": versions, "score": memory | figures}), "utf-8")


def rounded(value: float) -> float | str:
    """Return a value for JSON, which has no infinities."""
    return round(float(value), 4) if np.isfinite(value) else str(value)


def in_turns(children: Mapping[str, Child], seconds: float, least_rounds: int) -> Turns:
    """Time bursts of all entries, round after round in random order."""
    rounds: list[dict[str, dict[str, float]]] = []
    order, shuffled = list(children), random.Random(0)
    end = time.perf_counter() + seconds
    while children and (time.perf_counter() < end or len(rounds) < least_rounds):
        shuffled.shuffle(order)
        rounds.append({entry: children[entry].ask(f"burst {BURST_S}") for entry in order})
    clocks = next(iter(rounds[0].values())) if rounds else {}
    quartiles = {
        clock: {
            entry: 1000 * float(np.percentile([times[entry][clock] for times in rounds], QUARTILE))
            for entry in children
        }
        for clock in clocks
    }
    return Turns(quartiles, len(rounds))

"""Command of the scoreboard: run one cell, run all that have no result yet, or write the page."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from edgekit.errors import EdgeKitError
from edgekit.system.cache_folder import cache_folder
from tests.benchmarks.scoreboard.cell import THREADS, run_cell
from tests.benchmarks.scoreboard.makers import MAKERS, ROOT, TEXT_MAKERS, Workshop
from tests.benchmarks.scoreboard.networks import FIXED, NETWORKS, draw, labels_of, prepare
from tests.benchmarks.scoreboard.page import write_page
from tests.benchmarks.scoreboard.results import DRAW, key_of, load_results, save, write_results

PAGE = ROOT / "docs" / "scoreboard.md"
RESULTS = ROOT / "docs" / "scoreboard" / "results.json"
CELL_LIMIT_S = 3600


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scoreboard", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="file of the page")
    parser.add_argument("--work", type=Path, help="folder of networks, artifacts and environments")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cell = verbs.add_parser("cell", help="make, score and time one cell")
    cell.add_argument("network", choices=list(NETWORKS))
    cell.add_argument("engine", choices=list(MAKERS))
    every = verbs.add_parser("all", help="run each cell that has no result yet, and write the page")
    every.add_argument("--networks", nargs="*", choices=list(NETWORKS), metavar="NETWORK", help="these only")
    every.add_argument("--engines", nargs="*", choices=list(MAKERS), default=list(MAKERS))
    every.add_argument(
        "--retime",
        action="store_true",
        help="drop the results of these cells first: times anew, what is made kept",
    )
    every.add_argument("--seed", type=int, help="of the draw; by default the stored draw, or a random one")
    for verb in (cell, every):
        verb.add_argument("--again", nargs="*", default=[], metavar="MAKER", help="makers to run again")
        verb.add_argument("--skip", nargs="*", default=[], metavar="MAKER", help="makers left out: not run")
        verb.add_argument("--seconds", type=float, default=8.0, help="of timing for each number of threads")
        verb.add_argument("--threads", nargs="*", type=int, default=list(THREADS), help="numbers of threads")
        verb.add_argument("--search", type=float, default=60.0, help="time budget of EdgeKit's int8, seconds")
        verb.add_argument("--limit", type=float, default=240.0, help="seconds after which a maker is stopped")
    verbs.add_parser("page", help="write the page from the results")
    verbs.add_parser("list", help="list the networks and makers")
    options = parser.parse_args()
    options.work = options.work or cache_folder() / "scoreboard"
    if options.verb == "cell":
        one_cell(options)
    if options.verb == "all":
        all_cells(options)
    if options.verb in ("all", "page"):
        write_page(options.results, options.page)
        print(options.page)
    if options.verb == "list":
        print("\n".join(f"{network.name:22} {network.model}" for network in NETWORKS.values()))
        for table in (MAKERS, TEXT_MAKERS):
            print("\n".join(f"{engine:10} {maker.entry}" for engine in table for maker in table[engine]))


def one_cell(options: argparse.Namespace) -> None:
    """Run a cell and write its result; a network that can't be prepared is a result with its reason."""
    network = NETWORKS[options.network]
    folder = options.work / "networks" / network.name
    workshop = Workshop(options.work / "environments", search_s=options.search, limit_s=options.limit)
    result: dict[str, Any]
    try:
        prepare(network, folder)
        with tempfile.TemporaryDirectory() as drawn:
            labels = labels_of(network, folder, Path(drawn))
        result = run_cell(
            folder,
            options.engine,
            workshop,
            skip=options.skip,
            again=options.again,
            seconds=options.seconds,
            counts=options.threads,
            labels=labels,
        )
    except (EdgeKitError, SystemExit) as problem:
        result = failed(network.name, options.engine, str(problem).splitlines()[0])
    save(result, options.results)


def all_cells(options: argparse.Namespace) -> None:
    """Run each cell without a result in a process of its own, so that a crash costs one cell."""
    drawn = stored_draw(options.results, options.seed)
    names = options.networks or [*(network.name for network in FIXED), *drawn]
    if options.retime:
        again = {key_of(name, engine) for name in names for engine in options.engines}
        kept = {key: cell for key, cell in load_results(options.results).items() if key not in again}
        write_results(kept, options.results)
    for network in names:
        for engine in options.engines:
            if key_of(network, engine) in load_results(options.results) and not options.again:
                continue
            began = time.perf_counter()
            flags = [f"--{key}={getattr(options, key):g}" for key in ("seconds", "search", "limit")]
            for key in ("again", "skip", "threads"):
                flags += [f"--{key}", *map(str, getattr(options, key))] if getattr(options, key) else []
            command = [
                sys.executable, "-m", "tests.benchmarks.scoreboard", "--results", str(options.results),
                "--work", str(options.work), "cell", network, engine, *flags,
            ]  # fmt: skip
            try:
                code = subprocess.run(command, check=False, timeout=CELL_LIMIT_S).returncode
            except subprocess.TimeoutExpired:
                code = -1
            if code:
                save(failed(network, engine, f"the process of the cell ended with {code}"), options.results)
            print(f"{network} {engine}: {time.perf_counter() - began:.0f} s", flush=True)


def stored_draw(results: Path, seed: int | None) -> list[str]:
    """Return the names of the drawn networks: those of the stored draw, unless a seed is given.

    The draw is stored, so that a run that resumes has the same networks.
    """
    stored = load_results(results)
    if seed is None and DRAW in stored:
        return list(stored[DRAW]["networks"])
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    names = [network.name for network in draw(seed)]
    entry = {"seed": seed, "date": time.strftime("%Y-%m-%d", time.gmtime()), "networks": names}
    save(entry, results, DRAW)
    return names


def failed(network: str, engine: str, reason: str) -> dict[str, Any]:
    """Return the result of a cell that could not be run."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return {"network": network, "engine": engine, "date": date, "failure": reason, "entries": []}


if __name__ == "__main__":
    main()

"""The readers of what strangers send, under mutated input: bundles, manifests, cards, arrays, servers'
answers, signatures, channels of updates, state files, pictures, sounds and texts.

    python -m tests.fuzz.readers 1000000 [--seed 1] [--jobs 2] [--folder /dev/shm]

Each case is one input, made from its number and the seed. It may be read, or refused by an error of its
reader's own kind. Anything else is a fault and is printed with its case: another exception, the end of the
process, a second of processor time, 1 GiB of memory, or a file touched outside of the case's folder.
``--case N`` runs one again. test_readers.py is the short form.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SLOW_S = 1.0
"""Of processor time for one case."""
HANG_S: float = 30
"""After so long a case is interrupted, and told as one that hangs; the process ends if that does not help."""
MEMORY_BYTES = 1 << 30
TOLD = 200


class Fault(NamedTuple):
    case: int
    reader: str
    what: str


class HangError(BaseException):
    """A case that does not end; no reader may catch it."""


class Watched:
    """Files that Python opens for writing, makes, moves or removes outside of a folder (PEP 578)."""

    def __init__(self, folder: Path) -> None:
        self._inside = (f"{folder.resolve()}{os.sep}", "/dev/null")
        self.outside: list[str] = []
        sys.addaudithook(self._seen)

    def _seen(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
            paths = [path] if isinstance(flags, int) and flags & writing else []
        elif event in ("os.rename", "os.link", "os.symlink"):
            paths = list(arguments[:2])
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod"):
            paths = [arguments[0]]
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            self.outside.append(f"{event} {arguments[0]!r}")
            return
        else:
            return
        for path in paths:
            if isinstance(path, (str, bytes, os.PathLike)):
                # Not resolved: no case makes a link that leads out.
                name = os.path.abspath(os.fsdecode(path))
                if not name.startswith(self._inside):
                    self.outside.append(f"{event} {name!r}")


def run_cases(folder: Path, cases: Sequence[int], seed: int) -> Iterator[tuple[int, str, str, Fault | None]]:
    """Run cases in this process: (case, reader, outcome, its fault or None), one after the other."""
    from tests.fuzz.targets import targets

    whole = targets(folder)
    names, weights = list(whole), [target.share for target in whole.values()]
    watched = Watched(folder)
    signal.signal(signal.SIGALRM, _hang)
    for case in cases:
        draw = random.Random(f"{seed}/{case}")
        name = draw.choices(names, weights)[0]
        content, what, outcome = whole[name].make(draw), "", "fault"
        watched.outside.clear()
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        began = time.thread_time()
        try:
            outcome = whole[name].read(content)
        except HangError:
            what = f"more than {HANG_S} s: {traceback.format_exc()[-2000:]}"
        except Exception:
            what = traceback.format_exc()[-3000:]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.thread_time() - began
        if not what and seconds > SLOW_S:
            what = f"{seconds:.1f} s of processor time"
        if not what and watched.outside:
            what = f"outside: {watched.outside}"
        yield case, name, outcome, Fault(case, name, what) if what else None


def _hang(*_: object) -> None:
    raise HangError


def _work(folder: Path, cases: Sequence[int], seed: int) -> None:
    """A worker: the case at hand in ``at``, faults on stdout, at the end the counts."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from tests.fuzz.targets import targets

    targets(folder)  # what it loads is no case's memory
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    counts: collections.Counter[str] = collections.Counter()
    at = os.open(folder.parent / f"{folder.name}.at", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(at, b"%20d" % cases[0], 0)
    for case, name, outcome, fault in run_cases(folder, cases, seed):
        os.pwrite(at, b"%20d" % (case + 1), 0)
        counts[f"{name} {outcome}"] += 1
        if fault is not None:
            print(json.dumps(fault), file=told, flush=True)
    print(json.dumps(counts), file=told, flush=True)
    told.close()
    os._exit(0)


def share_of(folder: Path, cases: range, seed: int) -> Iterator[Fault | dict[str, int]]:
    """Run cases in a child; where it dies, that is a fault of one case, and another child goes on."""
    while cases:
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.readers", "--work", str(folder), "--seed", str(seed)]
        command += [str(cases.start), str(cases.stop)]
        environment = {**os.environ, "EDGEKIT_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
        assert child.stdout is not None
        for line in child.stdout:
            found = json.loads(line)
            yield Fault(*found) if isinstance(found, list) else found
        if child.wait() == 0:
            return
        at = int((folder.parent / f"{folder.name}.at").read_bytes())
        yield Fault(at, "?", f"the process ended with {child.returncode}")
        cases = range(at + 1, cases.stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cases", type=int, nargs="+", help="how many; with --work first and last")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", action="store_true", help="run the case of this number alone, here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        _work(asked.work, range(*asked.cases), asked.seed)
    with tempfile.TemporaryDirectory(prefix="edgekit-fuzz-", dir=asked.folder) as folder:
        if asked.case:
            print(*run_cases(Path(folder), asked.cases, asked.seed), sep="\n")
            return
        sys.exit(_spread(Path(folder), asked.cases[0], asked.seed, asked.jobs))


def _spread(folder: Path, total: int, seed: int, jobs: int) -> int:
    """All cases over ``jobs`` children at a time, in shares; 1 where there was a fault."""
    from concurrent.futures import ThreadPoolExecutor

    began, size = time.monotonic(), max(1, min(25_000, total // jobs))
    shares = [range(start, min(start + size, total)) for start in range(0, total, size)]
    counts: collections.Counter[str] = collections.Counter()
    faults: list[Fault] = []
    done = 0

    def run(number: int) -> list[Fault | dict[str, int]]:
        return list(share_of(folder / str(number), shares[number], seed))

    with ThreadPoolExecutor(jobs) as pool:
        for number, found in enumerate(pool.map(run, range(len(shares)))):
            done += len(shares[number])
            for one in found:
                if isinstance(one, Fault):
                    faults.append(one)
                    if len(faults) <= TOLD:
                        print(f"case {one.case} ({one.reader}): {one.what}", flush=True)
                else:
                    counts.update(one)
            spent = time.monotonic() - began
            print(f"{done:>9,} of {total:,}  {len(faults)} faults  {spent:.0f} s", flush=True)
    for key, count in sorted(counts.items()):
        print(f"{count:>9,}  {key}")
    return 1 if faults else 0


if __name__ == "__main__":
    main()

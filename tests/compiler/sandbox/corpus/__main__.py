"""The corpus through the command line: ``check`` and ``build`` of each model, every process measured.

    python -m tests.compiler.sandbox.corpus [--only TEXT] [--jobs 2] [--targets ort,openvino,tflite]

Prints a row for each class, and every model that did something else than to be refused, built or contained;
ends with 1 if there is one. It takes about 5 s a model and job.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.compiler.sandbox.corpus import sizes, structure
from tests.compiler.sandbox.corpus.crafted import Crafted

BYTES_BEYOND = 1_000_000_000
SECONDS = 150.0
"""The limit that each model's process is given; its own is 15 minutes for three targets."""
GRACE_S = 10.0
"""For the main process, which starts and stops it."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Ran(NamedTuple):
    """A run of the command line.

    Attributes:
        verb: ``check`` or ``build``.
        code: Its exit status; negative: the signal that ended the main process.
        seconds: Its time.
        main_mb: Most memory of the main process.
        child_mb: Most memory of the others.
        said: What it printed.
        faults: What it may not do, and did.
    """

    verb: str
    code: int
    seconds: float
    main_mb: float
    child_mb: float
    said: str
    faults: list[str]


def all_crafted() -> Iterator[Crafted]:
    """The corpus."""
    for part in (sizes, structure):
        yield from part.crafted()


def run(verb: str, model: Path, targets: Sequence[str], environment: dict[str, str]) -> Ran:
    """Run one verb on one model, and look at what its processes take."""
    command = [sys.executable, "-c", "from edgekit.cli import main; main()", verb, str(model)]
    command += [word for target in targets for word in ("-t", target)]
    made = model.parent / "made.edgekit"
    command += ["-o", str(made)] if verb == "build" else []
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        main = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=model.parent
        )
        late = threading.Timer(SECONDS + GRACE_S, main.kill)
        late.start()
        peaks: dict[int, int] = {}
        while main.poll() is None:
            for pid in [main.pid, *_descendants(main.pid)]:
                peaks[pid] = max(peaks.get(pid, 0), _peak_bytes(pid))
            time.sleep(0.01)
        is_late = not late.is_alive()
        late.cancel()
        seconds = time.monotonic() - started
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    size = sum(path.lstat().st_size for path in model.parent.iterdir() if path.is_file())
    main_bytes = peaks.pop(main.pid, 0)
    child_bytes = max(peaks.values(), default=0)
    code = main.returncode
    faults = [
        *([f"took more than {SECONDS:g} s"] if is_late else []),
        *([f"the main process died of {signal.Signals(-code).name}"] if code < 0 and not is_late else []),
        *([f"ended with {code}"] if code > 3 else []),
        *(["a traceback"] if "Traceback" in text else []),
        *([f"a control character: {CONTROL.findall(text)[:3]}"] if CONTROL.search(text) else []),
        *(["the main process took over 1 GB"] if main_bytes > BYTES_BEYOND + size else []),
        *(["its child took over 1 GB"] if child_bytes > BYTES_BEYOND + size else []),
        *(["no bundle"] if verb == "build" and code == 0 and not made.exists() else []),
        *(["a bundle"] if verb == "build" and code > 1 and made.exists() else []),
        *(["no reason"] if code != 0 and not text.strip() else []),
    ]
    return Ran(verb, code, seconds, main_bytes / 1e6, child_bytes / 1e6, text, faults)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for word in (task / "children").read_text("ascii").split():
                found += [int(word), *_descendants(int(word))]
    except OSError:  # it ended meanwhile
        pass
    return found


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def outcome(ran: Ran) -> str:
    """``built``, ``refused``, ``contained`` (its process died or hit a limit) or ``fault``."""
    if ran.faults:
        return "fault"
    if "its process" in ran.said:
        return "contained"
    if "a bug in EdgeKit" in ran.said:
        return "bug"
    return "taken" if ran.code == 0 else "refused"


def _tried(each: Crafted, targets: Sequence[str]) -> list[Ran]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "given")
        folder.mkdir()
        model = folder / "model.onnx"
        model.write_bytes(each.content())
        each.prepare(folder)
        environment = {**os.environ, "EDGEKIT_CACHE": str(Path(name, "cache"))}
        environment.pop("EDGEKIT_TRUSTED", None)
        environment["EDGEKIT_SECONDS"] = f"{SECONDS:g}"
        return [run(verb, model, targets, environment) for verb in ("check", "build")]


def main() -> int:
    """Run the corpus; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="models whose class and name hold this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--targets", default="ort,openvino,tflite")
    parser.add_argument("--rows", default=os.devnull, help="write a JSON line for each run here")
    given = parser.parse_args()
    chosen = [each for each in all_crafted() if given.only in f"{each.kind}: {each.name}"]
    by_kind: dict[str, list[Ran]] = defaultdict(list)
    with ThreadPoolExecutor(given.jobs) as pool, open(given.rows, "w", encoding="utf-8") as rows:
        tried = pool.map(lambda each: _tried(each, given.targets.split(",")), chosen)
        for each, runs in zip(chosen, tried, strict=True):
            by_kind[each.kind] += runs
            for ran in runs:
                row = {"kind": each.kind, "name": each.name, "outcome": outcome(ran), **ran._asdict()}
                print(json.dumps(row), file=rows, flush=True)
                if outcome(ran) in ("fault", "bug"):
                    last = ran.said.strip().splitlines()[-3:]
                    print(f"{each.kind}: {each.name}: {ran.verb}: {ran.faults or 'bug'}: {ascii(last)[:600]}")
    print(f"\n{'class':26} models  taken refused contained bug fault  slowest  main MB  child MB")
    by_kind["all"] = [ran for rows in by_kind.values() for ran in rows]
    for kind, runs in by_kind.items():
        counts = [
            sum(outcome(ran) == name for ran in runs)
            for name in ("taken", "refused", "contained", "bug", "fault")
        ]
        worst = [
            max(figures) for figures in zip(*[(r.seconds, r.main_mb, r.child_mb) for r in runs], strict=True)
        ]
        print(
            f"{kind:26} {len(runs) // 2:6} {counts[0]:6} {counts[1]:7} {counts[2]:9} {counts[3]:3} "
            f"{counts[4]:5} {worst[0]:6.1f} s {worst[1]:8.0f} {worst[2]:9.0f}"
        )
    return 1 if any(outcome(ran) == "fault" for runs in by_kind.values() for ran in runs) else 0


if __name__ == "__main__":
    sys.exit(main())

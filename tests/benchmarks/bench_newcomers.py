"""Newcomer's table: models that people bring, of many frameworks, from ``edgekit build`` to their answers.

    python -m tests.benchmarks.bench_newcomers --json DONE.json [--only WORD]... [--markdown FILE]

Each row of ``newcomers/`` is made in a process of its own, with random weights or out of a package, built as a
user types it, and compared with its own framework: the greatest difference of an output, over the greatest
value of the framework's. A row is

    right at once          built, and every output within the row's limit
    right after a paste    built after an option, which the error printed, was added to the command
    refused plainly        not built; the error has the words that the row asks for, and is one error, not a fault
    failed                 anything else

Rows whose framework is not installed are not run. Right and refused rows in the file of ``--json`` are not run
again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from edgekit._version import __version__
from edgekit.tensor_spec import Array
from tests.benchmarks.newcomers.rows import Made, Row

SECONDS = 900
EDGEKIT = [sys.executable, "-m", "edgekit"]
AT_ONCE, PASTED, REFUSED, FAILED = "right at once", "right after a paste", "refused plainly", "FAILED"
FAULT = re.compile(r"Traceback|report (it|this)|a (bug|fault) (in|of) EdgeKit|a fault of the importer")
OPTION = re.compile(r"^\s+(--[a-z].*)$|(?:add|use|with) (--[a-z-]+(?: [^\s,;]+)?)", re.MULTILINE)
BEGIN = "<!-- table: made by tests/benchmarks/bench_newcomers.py -->"
PACKAGES = (
    "torch", "torchvision", "timm", "segmentation-models-pytorch", "ultralytics-opencv-headless", "transformers",
    "scikit-learn", "skl2onnx", "xgboost-cpu", "lightgbm", "onnxmltools", "catboost", "keras", "jax", "jax2onnx",
    "flax", "equinox", "onnxruntime", "ai-edge-litert",
)  # fmt: skip


def all_rows() -> Iterator[Row]:
    """Yield the table's rows; of an absent framework the reason is printed."""
    from importlib import import_module

    for module in ("vision", "own", "transformers", "tabular", "keras_jax", "file"):
        try:
            yield from import_module(f"tests.benchmarks.newcomers.{module}_rows").rows()
        except ImportError as problem:
            print(f"{module}: not run, {problem}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="rows with this word in framework or name")
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    parser.add_argument("--again", action="store_true", help="run all chosen rows again")
    parser.add_argument("--markdown", type=Path, help="document whose table, at its end, is replaced")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        (row,) = (row for row in all_rows() if key_of(row) == options.row)
        print(json.dumps(tried(row, Path.cwd())))
        return
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    rows = list(all_rows())
    for row in rows:
        key = key_of(row)
        if options.only and not any(word.lower() in key.lower() for word in options.only):
            continue
        if done.get(key, {}).get("class", FAILED) != FAILED and not options.again:
            continue
        done[key] = in_a_process(row)
        if options.json:
            options.json.write_text(json.dumps(done, indent=1, ensure_ascii=False))
        print(f"{done[key]['class']:20} {key:60} {said(done[key])}", file=sys.stderr, flush=True)
    outcomes = [(row, done[key_of(row)]) for row in rows if key_of(row) in done]
    print("\n".join(summary(outcomes)))
    if options.markdown:
        kept = options.markdown.read_text("utf-8").partition(BEGIN)[0]
        options.markdown.write_text(kept + markdown(outcomes), "utf-8")


def key_of(row: Row) -> str:
    return f"{row.framework}: {row.name}, {row.form}"


def in_a_process(row: Row) -> dict[str, Any]:
    """Return the outcome of a row, which a process of its own tries in an empty folder."""
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(root), str(root / "targets"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": paths, "OMP_NUM_THREADS": "2"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.bench_newcomers", "--row", key_of(row)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment
            )
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except (subprocess.TimeoutExpired, IndexError, ValueError) as problem:
            error = done.stderr[-600:] if not isinstance(problem, subprocess.TimeoutExpired) else "too slow"
            return {"class": FAILED, "error": f"the row itself: {error}", "targets": {}}


def tried(row: Row, folder: Path) -> dict[str, Any]:
    """Make, build and compare a row's model."""
    started = time.perf_counter()
    try:
        made = row.make(folder)
    except Exception:
        return {"class": FAILED, "error": f"the row itself: {traceback.format_exc()[-600:]}", "targets": {}}
    outcome: dict[str, Any] = {"pasted": "", "error": "", "targets": {}, "command": ""}
    for target in row.targets:
        bundle = folder / f"{target}.edgekit"
        error, pasted, command = built(made, row.options, target, bundle)
        outcome["command"] = outcome["command"] or command
        first = target == row.targets[0]
        if first:
            outcome.update(pasted=pasted, error=error)
        outcome["targets"][target] = {"error": error} if error else compared(made, bundle, target)
        if error and first:
            break
    outcome["class"] = judged(row, outcome)
    outcome["seconds"] = round(time.perf_counter() - started, 1)
    return outcome


def built(made: Made, options: Sequence[str], target: str, bundle: Path) -> tuple[str, str, str]:
    """Build a model; return the error as it is printed, the options that were pasted, and the command."""
    if not isinstance(made.source, Path):
        return built_in_python(made, target, bundle), "", f"edgekit.build(model, targets=[{target!r}])"
    words = ["build", str(made.source), *options, "-t", target, "-o", str(bundle)]
    shown = f"edgekit build {made.source.name} {' '.join(options)} -t {target}".replace("  ", " ")
    done = run(words)
    if done.returncode == 0:
        return "", "", shown
    printed = message(done)
    lines = OPTION.findall(printed)
    if not lines or FAULT.search(printed):
        return printed, "", shown
    pasted = " ".join(dict.fromkeys(first or second for first, second in lines))
    again = run([*words, *pasted.split()])
    return ("" if again.returncode == 0 else message(again)), pasted, shown


def built_in_python(made: Made, target: str, bundle: Path) -> str:
    import edgekit

    try:
        example = {} if made.example_inputs is None else {"example_inputs": made.example_inputs}
        edgekit.build(made.source, targets=[target], **example).save(bundle)
    except edgekit.EdgeKitError as problem:
        return str(problem)
    except Exception:
        return traceback.format_exc()
    return ""


def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EDGEKIT, *words], capture_output=True, text=True, timeout=SECONDS)


def message(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed build printed, without its progress."""
    text = done.stderr.strip() or done.stdout.strip()
    _, mark, error = text.partition("error: ")
    return f"{mark}{error}" if mark else text


def compared(made: Made, bundle: Path, target: str) -> dict[str, Any]:
    """Return the greatest difference from the original, and whether the answers depend on the inputs."""
    try:
        pairs = text_pairs(made, bundle) if isinstance(made.samples[0], str) else array_pairs(made, bundle, target)
    except Exception:
        return {"error": traceback.format_exc()[-800:]}
    worst = max((difference(want, have) for want, have in pairs), default=0.0)
    first, second = (answers for answers in list(made.answers)[:2])
    moved = any(
        isinstance(one, str) or one.shape != two.shape or difference(one, two) > 1e-3
        for one, two in zip(first, second, strict=True)
    )
    return {"worst": worst, "depends": moved}


def text_pairs(made: Made, bundle: Path) -> list[tuple[Any, Any]]:
    from edgekit.runtime.generate import TextSession
    from tests.benchmarks.newcomers.file_rows import NEW_TOKENS

    with TextSession(bundle) as session:
        texts = ["".join(session.generate(prompt, max_tokens=NEW_TOKENS)) for prompt in made.samples]
    return [(answer[0], text) for answer, text in zip(made.answers, texts, strict=True)]


def array_pairs(made: Made, bundle: Path, target: str) -> list[tuple[Any, Any]]:
    from edgekit.runtime import Session

    pairs: list[tuple[Any, Any]] = []
    with Session(bundle, engine=target, strict=True) as session:
        names = [entry["name"] for entry in session.bundle.manifest["inputs"]]
        for sample, want in zip(made.samples, made.answers, strict=True):
            by_name = sample if isinstance(sample, Mapping) else dict(zip(names, sample, strict=True))
            have = list(session.run({name: np.asarray(by_name[name]) for name in names}).values())
            pairs += zip(want, have, strict=True)
    return pairs


def difference(want: Any, have: Any) -> float:
    """Return the greatest difference over the greatest value; 1 for texts, shapes or labels that differ."""
    if isinstance(want, str) or isinstance(have, str):
        return float(want != have)
    want, have = np.asarray(want), np.asarray(have)
    if want.size != have.size:
        return 1.0
    have = have.reshape(want.shape)
    if want.dtype.kind not in "fc":
        return float(np.mean(want != have)) if want.dtype.kind not in "US" else 0.0
    return worst_of(want.astype(np.float64), have.astype(np.float64))


def worst_of(want: Array, have: Array) -> float:
    finite = np.isfinite(want)
    if not np.array_equal(np.where(finite, 0, want), np.where(finite, 0, have), equal_nan=True):
        return 1.0
    greatest = np.abs(want[finite]).max(initial=0)
    return float(np.abs(want[finite] - have[finite]).max(initial=0) / max(greatest, 1e-30))


def judged(row: Row, outcome: Mapping[str, Any]) -> str:
    error = outcome["error"]
    if row.refused:
        plain = row.refused in error and not FAULT.search(error)
        return REFUSED if plain else FAILED
    if error:
        return FAILED
    first, *others = outcome["targets"].values()
    if "worst" not in first or first["worst"] > row.limit or not first["depends"]:
        return FAILED
    for other in others:
        wrong = "worst" in other and other["worst"] > row.limit
        if wrong or FAULT.search(other.get("error", "")):
            return FAILED
    return PASTED if outcome["pasted"] else AT_ONCE


def said(outcome: Mapping[str, Any]) -> str:
    parts = [f"pasted {outcome['pasted']}"] if outcome.get("pasted") else []
    for target, found in outcome["targets"].items():
        parts.append(f"{target} {found['worst']:.0e}" if "worst" in found else f"{target} no")
    if outcome["error"]:
        parts.append(outcome["error"].replace("\n", " / ")[:300])
    return "  ".join(parts)


def summary(outcomes: Sequence[tuple[Row, Mapping[str, Any]]]) -> list[str]:
    counts = Counter(outcome["class"] for _, outcome in outcomes)
    total = len(outcomes)
    new = sum(not row.known for row, _ in outcomes)
    worst: dict[str, float] = {}
    built_for: Counter[str] = Counter()
    for _, outcome in outcomes:
        for target, found in outcome["targets"].items():
            if "worst" in found:
                built_for[target] += 1
                worst[target] = max(worst.get(target, 0), found["worst"])
    goals = {AT_ONCE: "goal: 85 %", FAILED: "goal: none"}
    lines = [f"{total} models, {new} of them new; goal: 100, 40 new"]
    for kind in (AT_ONCE, PASTED, REFUSED, FAILED):
        share = f"{counts[kind]:4} ({counts[kind] / max(total, 1):.0%})"
        lines.append(f"{kind:20} {share}  {goals.get(kind, '')}".rstrip())
    return [*lines, *(f"{target:7} {built_for[target]} built, greatest difference {worst[target]:.0e}" for target in worst)]


def markdown(outcomes: Sequence[tuple[Row, Mapping[str, Any]]]) -> str:
    made = f"{datetime.now(timezone.utc).date().isoformat()}, EdgeKit {__version__}; {', '.join(installed())}"
    lines = [BEGIN, "", made, "", *(f"    {line}" for line in summary(outcomes)), ""]
    frameworks = list(dict.fromkeys(row.framework for row, _ in outcomes))
    lines += ["| framework | models | right at once | after a paste | refused plainly | failed |", "|---|---|---|---|---|---|"]
    for framework in frameworks:
        counts = Counter(outcome["class"] for row, outcome in outcomes if row.framework == framework)
        cells = (counts[kind] or "" for kind in (AT_ONCE, PASTED, REFUSED, FAILED))
        lines.append(f"| {framework} | {counts.total()} | {' | '.join(map(str, cells))} |")
    lines += ["", "| model | form | outcome | ort | tflite |", "|---|---|---|---|---|"]
    for framework in frameworks:
        for row, outcome in outcomes:
            if row.framework == framework:
                kind = outcome["class"] + (f": `{outcome['pasted']}`" if outcome["pasted"] else "")
                cells = (cell(outcome["targets"].get(target)) for target in ("ort", "tflite"))
                star = "" if row.known else " *"
                lines.append(f"| {framework}: {row.name}{star} | {row.form} | {kind} | {' | '.join(cells)} |")
    lines += ["", "## Refusals as they are printed", ""]
    for row, outcome in outcomes:
        refusals = {"": outcome["error"]} if outcome["error"] else {
            f" on {target}": found["error"] for target, found in outcome["targets"].items() if "error" in found
        }  # fmt: skip
        for place, error in refusals.items():
            lines += [f"**{row.framework}: {row.name}{place}**", "", "```text", shortened(error), "```", ""]
    return "\n".join(lines)


def cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['worst']:.0e}" if "worst" in found else "refused"


def shortened(error: str) -> str:
    """Return an error without this machine's folders."""
    return re.sub(r"(/[\w.+~-]+)+/", ".../", error.strip())


def installed() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


if __name__ == "__main__":
    main()

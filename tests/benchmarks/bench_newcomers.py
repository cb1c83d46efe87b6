"""Newcomer's table: models that people bring, of many frameworks, from ``edgekit build`` to their answers.

    python -m tests.benchmarks.bench_newcomers --json DONE.json [--only WORD]... [--markdown FILE]

Each row of ``newcomers/`` is made in a process of its own, with random weights or out of a package, built as
a user types it, and compared with its own framework: the greatest difference of an output, over the greatest
value of the framework's. A row is

    right at once          built, and every output within the row's limit
    right after a paste    built after an option, which the error printed, was added to the command
    refused plainly        not built; the error has the words that the row asks for, and no traceback
    failed                 anything else

Rows whose framework is not installed are not run. Right and refused rows in the file of ``--json`` are not
run again.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EdgeKitError
from edgekit.tensor_spec import Array
from tests.benchmarks.newcomers.page import AT_ONCE, BEGIN, FAILED, PASTED, REFUSED, markdown, summary
from tests.benchmarks.newcomers.rows import Made, Row

SECONDS = 900
EDGEKIT = [sys.executable, "-m", "edgekit"]
FAULT = re.compile(r"Traceback|report (it|this)|a (bug|fault) (in|of) EdgeKit|a fault of the importer")
OPTION = re.compile(r"^\s+(--[a-z].*)$|[Aa]dd (--trust-pickle|--shape [^\s,;]+)", re.MULTILINE)
OUTCOME = "outcome.json"
TORCH = ("torch", "torchvision", "onnxscript", "edgekit.compiler.pipeline.build_bundle")
TABLES = (
    "sklearn.linear_model",
    "sklearn.ensemble",
    "sklearn.svm",
    "skl2onnx",
    "onnxmltools",
    "xgboost",
    "lightgbm",
    "ai_edge_litert.interpreter",
    "edgekit.compiler.pipeline.build_bundle",
)
JAX = (
    "jax",
    "jax2onnx",
    "onnxruntime",
    "ai_edge_litert.interpreter",
    "edgekit.compiler.pipeline.build_bundle",
)
PRELOADED = {
    "torchvision": TORCH,
    "timm": (*TORCH, "timm"),
    "segmentation-models-pytorch": (*TORCH, "timm", "segmentation_models_pytorch"),
    "Ultralytics": (*TORCH, "ultralytics"),
    "transformers": (*TORCH, "transformers"),
    "scikit-learn": TABLES,
    "XGBoost": TABLES,
    "LightGBM": TABLES,
    "CatBoost": (*TABLES, "catboost"),
    "Keras": (*JAX, "keras"),
    "JAX": JAX,
    "Flax nnx": (*JAX, "flax.nnx"),
    "Flax Linen": (*JAX, "flax.linen"),
    "Equinox": (*JAX, "equinox"),
}
"""Framework -> modules that its rows need, and that may be imported before a fork."""


def all_rows() -> Iterator[Row]:
    """Yield the table's rows; of an absent framework the reason is printed."""
    for module in ("vision", "transformers", "tabular", "keras_jax", "file"):
        try:
            yield from import_module(f"tests.benchmarks.newcomers.{module}_rows").rows()
        except ImportError as problem:
            print(f"{module}: not run, {problem}", file=sys.stderr)


def main() -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", action="append", default=[], help="rows with this word in framework or name"
    )
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    parser.add_argument("--again", action="store_true", help="run all chosen rows again")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time")
    parser.add_argument("--markdown", type=Path, help="document whose table, at its end, is replaced")
    options = parser.parse_args()
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    rows = list(all_rows())
    words = [word.lower() for word in options.only]
    chosen = [row for row in rows if not words or any(word in key_of(row).lower() for word in words)]
    kept = [] if options.again else [key for key, outcome in done.items() if outcome["class"] != FAILED]
    for row, outcome in outcomes_of([row for row in chosen if key_of(row) not in kept], options.jobs):
        key = key_of(row)
        done[key] = outcome
        if options.json:
            options.json.write_text(json.dumps(done, indent=1, ensure_ascii=False))
        print(f"{outcome['class']:20} {key:60} {said(outcome)}", file=sys.stderr, flush=True)
    outcomes = [(row, done[key_of(row)]) for row in rows if key_of(row) in done]
    print("\n".join(summary(outcomes)))
    if options.markdown:
        kept = options.markdown.read_text("utf-8").partition(BEGIN)[0]
        options.markdown.write_text(kept + markdown(outcomes), "utf-8")


def key_of(row: Row) -> str:
    return f"{row.framework}: {row.name}, {row.form}"


def outcomes_of(rows: Sequence[Row], jobs: int) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield the outcome of each row, which a process of its own tries in an empty folder.

    The processes are forks of this one, which has imported the frameworks once.
    """
    waiting, running = list(rows), dict[Row, tuple[Any, Any, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            row = waiting.pop(0)
            preload(row.framework)
            folder = tempfile.TemporaryDirectory()
            process = get_context("fork").Process(target=forked, args=(row, Path(folder.name)))
            process.start()
            running[row] = process, folder, time.monotonic()
        time.sleep(0.2)
        for row, (process, folder, started) in list(running.items()):
            if process.is_alive() and time.monotonic() - started < SECONDS:
                continue
            process.kill()
            process.join()
            file = Path(folder.name) / OUTCOME
            if file.exists():
                yield row, dict(json.loads(file.read_text()))
            else:
                error = f"the row itself: exit code {process.exitcode}"
                yield row, {"class": FAILED, "pasted": "", "error": error, "targets": {}}
            folder.cleanup()
            del running[row]


@functools.cache
def preload(framework: str) -> None:
    """Import what the rows of a framework need. Torch's exporter imports a great deal at its first export."""
    for name in PRELOADED.get(framework, ()):
        if find_spec(name.partition(".")[0]):
            import_module(name)
    first = PRELOADED.get(framework, ())[:1]
    if first == TORCH[:1]:
        warm_up_torch()
    elif first == TABLES[:1]:
        warm_up_tables()


@functools.cache
def warm_up_torch() -> None:
    import torch

    import edgekit

    torch.set_num_threads(1)  # a fork has one thread
    edgekit.import_model(torch.nn.Linear(2, 2), example_inputs=(torch.zeros(1, 2),))


@functools.cache
def warm_up_tables() -> None:
    from sklearn.linear_model import LinearRegression

    import edgekit

    edgekit.import_model(LinearRegression().fit(np.eye(3, dtype=np.float32), np.ones(3, np.float32)))


def forked(row: Row, folder: Path) -> None:
    with (folder / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(folder)
    outcome = tried(row, folder)
    (folder / OUTCOME).write_text(json.dumps(outcome))


def tried(row: Row, folder: Path) -> dict[str, Any]:
    """Make, build and compare a row's model."""
    started = time.process_time(), sum(os.times()[2:4])
    try:
        made = row.make(folder)
    except Exception:
        return {
            "class": FAILED,
            "pasted": "",
            "error": f"the row itself: {traceback.format_exc()[-600:]}",
            "targets": {},
        }
    bundle = folder / "out.edgekit"
    error, pasted, command = built(made, row.options, row.targets, bundle)
    targets = row.targets
    outcome: dict[str, Any] = {"targets": {}}
    if error and len(targets) > 1:  # one target refuses the model: the other alone
        of_both = error
        targets = targets[:1]
        error, pasted, command = built(made, row.options, targets, bundle)
        if not error:
            outcome["targets"] = {target: {"error": of_both} for target in row.targets[1:]}
    if not error:
        outcome["targets"] = {target: compared(made, bundle, target) for target in targets} | outcome[
            "targets"
        ]
    outcome.update(pasted=pasted, error=error, command=command)
    outcome["class"] = judged(row, outcome)
    outcome["cpu_s"] = round(time.process_time() - started[0] + sum(os.times()[2:4]) - started[1], 1)
    return outcome


def built(made: Made, options: Sequence[str], targets: Sequence[str], bundle: Path) -> tuple[str, str, str]:
    """Build a model; return the error as it is printed, the options that were pasted, and the command."""
    if not isinstance(made.source, Path):
        return built_in_python(made, targets, bundle), "", f"edgekit.build(model, targets={list(targets)})"
    ends = [word for target in targets for word in ("-t", target)]
    words = ["build", str(made.source), *options, *ends, "-o", str(bundle)]
    shown = " ".join(["edgekit build", made.source.name, *options, *ends])
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


def built_in_python(made: Made, targets: Sequence[str], bundle: Path) -> str:
    import edgekit

    try:
        example = {} if made.example_inputs is None else {"example_inputs": made.example_inputs}
        edgekit.build(made.source, targets=list(targets), **example).save(bundle)
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
        pairs = (
            text_pairs(made, bundle)
            if isinstance(made.samples[0], str)
            else array_pairs(made, bundle, target)
        )
    except EdgeKitError as problem:  # this target's variant was rejected
        return {"error": str(problem)}
    except Exception:
        return {"error": traceback.format_exc()[-800:]}
    worst = max((difference(want, have) for want, have in pairs), default=0.0)
    first, *others = made.answers
    moved = any(
        isinstance(one, str) or one.shape != two.shape or difference(one, two) > 1e-3
        for other in others
        for one, two in zip(first, other, strict=True)
    )
    return {"worst": worst, "depends": moved}


def text_pairs(made: Made, bundle: Path) -> list[tuple[Any, Any]]:
    from edgekit.generate import TextSession
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


if __name__ == "__main__":
    main()

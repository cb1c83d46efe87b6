"""Any model in, any task out: trained models of packages from ``edgekit model card`` to a drawn answer.

    python tests/benchmarks/bench_any_model.py [--only WORD]... [--keep FOLDER] [--json FILE]

For each model of ``models.toml``: ``edgekit model card``, then the corrections that the table has for it,
then ``edgekit build`` with no option but the target, then ``edgekit run`` on a sample, and its answer is held
to what the table expects. Needs ``../shared`` (models and photographs), network for the packages, and
espeak-ng for speech. One model at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from edgekit._version import __version__
from edgekit.compiler.card_inference.lines import GUESSED, toml_value
from edgekit.system.formats.plain_text import table
from tests.benchmarks.bert_tokenizer import write_tokenizer
from tests.benchmarks.expectations import judge
from tests.benchmarks.packaged_models import SHARED, Model, Package, fetch, fetch_member, read_table
from tests.benchmarks.real_samples import write_sample

SECONDS = 600
EDGEKIT = [sys.executable, "-c", "from edgekit.cli import main; main()"]


class Outcome(NamedTuple):
    """What became of one model.

    Attributes:
        model: The row.
        decoder: Task and decoder that were drafted.
        corrected: Lines of the card that the table corrects; those that were not marked as guessed in
            ``unmarked``.
        guessed: Lines that the draft marked.
        bare: Whether ``edgekit build MODEL -t tflite`` works without any other option.
        target: The first target of tflite and ort that the model with its card was built for; "" for none.
        right: Whether the answer is what the table expects.
        said: The answer in short, or what failed.
    """

    model: Model
    decoder: str = "-"
    corrected: int = 0
    unmarked: Sequence[str] = ()
    guessed: int = 0
    bare: bool = False
    target: str = ""
    right: bool = False
    said: str = ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[], help="models whose name has this word")
    parser.add_argument("--keep", type=Path, help="folder for the cards and drawn answers")
    parser.add_argument("--json", type=Path, help="file for the outcomes; right ones are not run again")
    parser.add_argument("--markdown", type=Path, help="document whose table, at its end, is replaced")
    options = parser.parse_args()
    packages, models = read_table()
    chosen = [m for m in models if not options.only or any(w.lower() in m.name.lower() for w in options.only)]
    done = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    outcomes = []
    for model in chosen:
        if done.get(model.name, {}).get("right"):
            outcomes.append(Outcome(model, **done[model.name]))
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = tried(model, packages, fetch(model, packages), Path(folder), options.keep)
        outcomes.append(outcome)
        done[model.name] = {k: v for k, v in outcome._asdict().items() if k != "model"}
        if options.json:
            options.json.write_text(json.dumps(done, indent=1, ensure_ascii=False))
        print(row(outcome), file=sys.stderr, flush=True)
    report(outcomes)
    if options.markdown:
        kept = options.markdown.read_text("utf-8").partition(BEGIN)[0]
        options.markdown.write_text(kept + markdown(outcomes, packages), "utf-8")


def tried(
    model: Model, packages: Mapping[str, Package], path: Path, folder: Path, keep: Path | None
) -> Outcome:
    card, bundle = folder / "card.toml", folder / "model.edgekit"
    bare = run("build", path, "-t", "tflite", "-o", folder / "bare.edgekit", "--json").returncode == 0
    drafted = run("model", "card", path, "-o", card, "--json")
    found = Outcome(model, bare=bare)
    if drafted.returncode != 0:
        return found._replace(said=f"card: {first_line(drafted)}")
    answer = json.loads(drafted.stdout)
    task = answer["content"].get("task")
    text = card.read_text("utf-8")
    guessed = set(answer["guessed"])
    unmarked = [key for key in model.corrections if key not in guessed and has_line(text, key)]
    card.write_text(corrected(text, model.corrections), "utf-8")
    found = found._replace(
        decoder=f"{task['kind']} {task['decode']}" if task else "none",
        corrected=len(model.corrections),
        unmarked=unmarked,
        guessed=len(guessed),
    )
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{slug(model)}.toml").write_text(card.read_text("utf-8"), "utf-8")
    if model.vocabulary:
        given = model.vocabulary
        vocabulary = fetch_member(packages[given["package"]], given["member"], given["sha256"])
        write_tokenizer(vocabulary, folder / "tokenizer.json")
    refusals = []
    for target in ("tflite", "ort"):
        built = run("build", path, "--card", card, "-t", target, "-o", bundle, "--json")
        if built.returncode == 0:
            break
        refusals.append(f"{target}: {first_line(built)}")
    else:
        return found._replace(said="; ".join(refusals))
    found = found._replace(target=target)
    if "sentence" in model.sample:
        return embedded(model, bundle, found)
    inputs = {name: entry for name, entry in answer["content"]["inputs"].items() if "value" not in entry}
    fed = next((n for n, entry in inputs.items() if entry["kind"] != "tensor"), next(iter(inputs)))
    sample = write_sample(model.sample, folder, SHARED / "data")
    drawn = sample.suffix == ".png" and task is not None and task["kind"] != "read-text"
    drawing = ["--draw", (keep / f"{slug(model)}.jpg").absolute()] if keep and drawn else []
    ran = run("run", bundle, "-i", f"{fed}={sample}", "--json", *drawing)
    if ran.returncode != 0:
        return found._replace(said=f"run: {first_line(ran)}")
    result = json.loads(ran.stdout)
    if result["answer"] is None:
        return found._replace(said="no answer: the card has no task")
    right, said = judge(model.expect, result["answer"])
    return found._replace(right=right, said=said)


def embedded(model: Model, bundle: Path, found: Outcome) -> Outcome:
    """Three sentences: the first has to be nearer to the second, by its cosine, than to the third."""
    vectors = []
    for text in (model.sample["sentence"], model.expect["near"], model.expect["far"]):
        ran = run("run", bundle, "--text", text, "--json")
        if ran.returncode != 0:
            return found._replace(said=f"run: {first_line(ran)}")
        vectors.append(json.loads(ran.stdout)["answer"]["vector"])
    near, far = (sum(a * b for a, b in zip(vectors[0], other, strict=True)) for other in vectors[1:])
    return found._replace(
        right=near > far + 0.2, said=f"cosine {near:.2f} with its like, {far:.2f} with another"
    )


def run(*words: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(
        [*EDGEKIT, *map(str, words)], capture_output=True, text=True, timeout=SECONDS, env=environment
    )


def has_line(text: str, key: str) -> bool:
    return find_line(text, key) is not None


def find_line(text: str, key: str) -> tuple[int, int] | None:
    """First and last line, of a card's text, that hold a key such as ``inputs.images.colour``."""
    name, _, last = key.rpartition(".")
    section, start = "", 0
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("["):
            section = line.strip("[]")
        if not line.startswith("#") and section == name and re.match(rf"{re.escape(last)} = ", line):
            start = number - 1 if number and lines[number - 1].startswith(f"# {GUESSED}") else number
            return start, number
    return None


def corrected(text: str, corrections: Mapping[str, Any]) -> str:
    """The card with some lines replaced, or added to their table; a value of "" takes a line out."""
    for key, value in corrections.items():
        name, _, last = key.rpartition(".")
        line = [] if value == "" else [f"{last} = {toml_value(value)}"]
        lines = text.splitlines()
        at = find_line(text, key)
        if at is not None:
            lines[at[0] : at[1] + 1] = line
        elif f"[{name}]" in lines:
            lines.insert(lines.index(f"[{name}]") + 1, *line)
        else:
            lines += ["", f"[{name}]", *line]
        text = "\n".join(lines) + "\n"
    return text


def slug(model: Model) -> str:
    return re.sub(r"[^a-z0-9]+", "-", model.name.lower()).strip("-")


def first_line(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command failed: what became of the variants, or the error."""
    if done.returncode == 1 and done.stdout.startswith("{"):
        variants = json.loads(done.stdout)["manifest"]["variants"]
        return "; ".join(variant["status"] for variant in variants)[:160]
    lines = done.stderr.splitlines()
    return ([line for line in lines if line.startswith("error")] or lines or ["?"])[0][:160]


def row(outcome: Outcome) -> str:
    return " | ".join(cells(outcome))


def cells(outcome: Outcome) -> list[str]:
    return [
        outcome.model.name,
        outcome.model.package,
        outcome.decoder,
        f"{outcome.corrected} of {outcome.guessed}"
        + (f" ({', '.join(outcome.unmarked)})" if outcome.unmarked else ""),
        "yes" if outcome.bare else "no",
        outcome.target or "no",
        "right" if outcome.right else "WRONG" if outcome.target else "-",
        outcome.said,
    ]


BEGIN = "<!-- table: made by tests/benchmarks/bench_any_model.py -->"


def markdown(outcomes: Sequence[Outcome], packages: Mapping[str, Package]) -> str:
    rows = [
        "| model | from | task and decoder | corrected | no option | built for | answer |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        model = outcome.model
        package = packages.get(model.package)
        source = f"{package.spec} ({package.license})" if package else "see `samples/cards`"
        answer = outcome.said if outcome.right else f"**no**: {model.refused or outcome.said}"
        rows.append(
            f"| {model.name} | {source} | {outcome.decoder} | {outcome.corrected} of {outcome.guessed} "
            f"| {'yes' if outcome.bare else 'no'} | {outcome.target or '-'} | {answer} |"
        )
    figures = [f"    {line}" for line in summary(outcomes)]
    made = f"{datetime.now(timezone.utc).date().isoformat()}, EdgeKit {__version__}"
    return "\n".join([BEGIN, "", made, "", *figures, "", *rows, ""])


COLUMNS = ("model", "package", "decoder", "corrected of guessed", "no option", "with card", "answer", "said")


def report(outcomes: Sequence[Outcome]) -> None:
    print("\n".join(table(COLUMNS, [cells(outcome) for outcome in outcomes])))
    print("\n".join(["", *summary(outcomes)]))


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    right = [outcome for outcome in outcomes if outcome.right]
    lines = [outcome.corrected for outcome in right] or [0]
    count = len(outcomes)
    built = sum(bool(outcome.target) for outcome in outcomes)
    bare = sum(outcome.bare for outcome in outcomes)
    return [
        f"answer right      {len(right)} of {count}; goal: 40 models",
        f"corrected lines   median {median(lines):g}, most {max(lines)}; goal: 0, at most 3",
        f"built with card   {built} of {count}; goal: 9 of 10",
        f"built without     {bare} of {count}; goal: 9 of 10",
    ]


if __name__ == "__main__":
    main()

"""Summary and page of the newcomer's table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgekit._version import __version__
from tests.benchmarks.newcomers.rows import Row

AT_ONCE, PASTED, REFUSED, FAILED = "right at once", "right after a paste", "refused plainly", "FAILED"
BEGIN = "<!-- table: made by tests/benchmarks/bench_newcomers.py -->"
EARLIER = Path(__file__).with_name("earlier_refusals.json")
"""Messages that refused rows printed in an earlier version."""
LINE = 200
"""Maximum characters of an error in the table of refusals."""
PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "segmentation-models-pytorch",
    "ultralytics-opencv-headless",
    "transformers",
    "scikit-learn",
    "skl2onnx",
    "xgboost-cpu",
    "lightgbm",
    "onnxmltools",
    "catboost",
    "keras",
    "jax",
    "jax2onnx",
    "flax",
    "equinox",
    "onnxruntime",
    "ai-edge-litert",
)


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
    return [
        *lines,
        *(
            f"{target:7} {built_for[target]} built, greatest difference {worst[target]:.0e}"
            for target in worst
        ),
    ]


def markdown(outcomes: Sequence[tuple[Row, Mapping[str, Any]]]) -> str:
    made = f"{datetime.now(timezone.utc).date().isoformat()}, EdgeKit {__version__}; {', '.join(installed())}"
    lines = [BEGIN, "", made, "", *(f"    {line}" for line in summary(outcomes)), ""]
    frameworks = list(dict.fromkeys(row.framework for row, _ in outcomes))
    lines += [
        "| framework | models | right at once | after a paste | refused plainly | failed |",
        "|---|---|---|---|---|---|",
    ]
    for framework in frameworks:
        counts = Counter(outcome["class"] for row, outcome in outcomes if row.framework == framework)
        numbers = (str(counts[kind] or "") for kind in (AT_ONCE, PASTED, REFUSED, FAILED))
        lines.append(f"| {framework} | {counts.total()} | {' | '.join(numbers)} |")
    lines += ["", "| model | form | outcome | ort | tflite |", "|---|---|---|---|---|"]
    for framework in frameworks:
        for row, outcome in outcomes:
            if row.framework == framework:
                kind = outcome["class"] + (f": `{outcome['pasted']}`" if outcome["pasted"] else "")
                cells = (cell(outcome["targets"].get(target)) for target in ("ort", "tflite"))
                star = "" if row.known else " *"
                lines.append(f"| {framework}: {row.name}{star} | {row.form} | {kind} | {' | '.join(cells)} |")
    lines += changed_refusals(outcomes)
    lines += ["", "## Refusals as they are printed", ""]
    for row, outcome in outcomes:
        refusals = (
            {"": outcome["error"]}
            if outcome["error"]
            else {
                f" on {target}": found["error"]
                for target, found in outcome["targets"].items()
                if "error" in found
            }
        )
        for place, error in refusals.items():
            lines += [f"**{row.framework}: {row.name}{place}**", "", "```text", shortened(error), "```", ""]
    return "\n".join(lines)


def changed_refusals(outcomes: Sequence[tuple[Row, Mapping[str, Any]]]) -> list[str]:
    """Return the table of refusals as they were and as they are, a line each."""
    earlier = json.loads(EARLIER.read_text("utf-8"))
    lines = [
        "", "## Refusals before and now", "",
        f"Before: what the tree of {earlier['day']} (`{earlier['commit']}`) printed for the same rows.", "",
        "| model | before | now |", "|---|---|---|",
    ]  # fmt: skip
    for row, outcome in outcomes:
        if outcome["error"] and (before := earlier["errors"].get(f"{row.framework}: {row.name}, {row.form}")):
            cells = (f"`{one_line(text)}`" for text in (before, outcome["error"]))
            lines.append(f"| {row.framework}: {row.name} | {' | '.join(cells)} |")
    return lines


def one_line(error: str) -> str:
    """Return the first line of an error, or the last one of a traceback, for a cell of a table."""
    lines = [line for line in shortened(error).splitlines() if line.strip()]
    text = lines[-1 if lines[0].startswith("Traceback") else 0].removeprefix("error: ")
    text = text.replace("|", "/").replace("`", "'")
    return text if len(text) <= LINE else f"{text[: LINE - 3]}..."


def cell(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    return f"{found['worst']:.0e}" if "worst" in found else "refused"


def shortened(error: str) -> str:
    """Return an error without this machine's folders."""
    return re.sub(r"(?<![\w:/])(/[\w.+~-]+)+/", ".../", error.strip())


def installed() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue

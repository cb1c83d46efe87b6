"""Two sets of samples as a bundle sees them, as tables that a drift monitor such as Evidently compares.

One row a sample: means and standard deviations of the prepared inputs and of the outputs, and what the task's
answer says (the best label and its score, how many things were found). The pictures themselves stay here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.prepared_files import prepared_suffixes
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.samples import read_sample, spread
from edgekit.errors import SampleError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.picture_files import PICTURES, read_picture
from edgekit.runtime import Session
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats.plain_text import table
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array

REFERENCE, CURRENT = "reference.csv", "current.csv"
"""The two tables that Evidently calls so: what was normal, and what came."""

Row = Mapping[str, str | float | int]


@dataclass(frozen=True)
class DriftReport:
    """The rows of the two sets, in the order of their files, and what ran."""

    reference: Sequence[Row]
    current: Sequence[Row]
    active: Mapping[str, Any]

    def text(self) -> str:
        """Return the mean of each figure in both sets, and their difference in standard deviations of the
        reference."""
        rows = []
        for name in _numbers(self.reference):
            before, after = (np.array([row[name] for row in side]) for side in (self.reference, self.current))
            spread_of = float(before.std())
            deviations = f"{(after.mean() - before.mean()) / spread_of:+.1f}" if spread_of > 0 else "-"
            rows.append([name, f"{before.mean():.4g}", f"{after.mean():.4g}", deviations])
        shown = "\n".join(table(("figure", "reference", "current", "deviations"), rows))
        counts = f"{len(self.reference)} and {len(self.current)} samples, {self.active['variant']}"
        return f"{shown}\n\n  ran       {counts} on {self.active['engine']}"

    def as_json(self) -> dict[str, Any]:
        return {
            "active": dict(self.active),
            "samples": {"reference": len(self.reference), "current": len(self.current)},
        }

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write ``reference.csv`` and ``current.csv``."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / REFERENCE, folder / CURRENT
        for path, rows in zip(paths, (self.reference, self.current), strict=True):
            write_atomically(path, [_csv(rows)])
        return paths


def drift_of(
    bundle: Bundle,
    base: str,
    new: str,
    *,
    engine: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    limit: int | None = None,
) -> DriftReport:
    """Run a bundle on two sets of samples.

    Args:
        base, new: Files, folders or globs: what the bundle was made for, and what it sees now.
        limit: Most samples of each, evenly spread; None: all.
    """
    card = parse_card(bundle.card) if bundle.card is not None else None
    suffixes = (".npz", ".npy", *prepared_suffixes(card))
    files = [spread(find_files(source, suffixes), limit) for source in (base, new)]
    with Session(bundle, engine=engine, variant=variant, threads=threads) as session:
        reference, current = (
            [_row(session, card, path) for path in counted(group, "samples")] for group in files
        )
        active = session.active._asdict()
    if _numbers(reference) != _numbers(current):
        raise SampleError(
            f"{base} and {new} are of different kinds (pictures and arrays); use two sets of the same kind"
        )
    return DriftReport(reference, current, active)


def _row(session: Session, card: Card | None, path: Path) -> Row:
    placed: Any = None
    feeds: Mapping[str, Array]
    if card is not None and path.suffix.lower() in PICTURES:
        feeds, placed = session.prepare(read_picture(path))
    else:
        feeds = read_sample(path, session.inputs, card)
    outputs = session.run(feeds)
    row: dict[str, str | float | int] = {"file": path.name}
    for kind, arrays in (("input", feeds), ("output", outputs)):
        for name, array in arrays.items():
            row |= _figures(f"{kind} {name}", array)
    if placed is not None and card is not None and card.task is not None:
        row |= _answer(session.decode(outputs, placed))
    return row


def _figures(name: str, array: Array) -> dict[str, float]:
    numbers = np.asarray(array, np.float64)
    if not numbers.size:
        return {f"{name} mean": 0.0, f"{name} std": 0.0}
    return {f"{name} mean": float(numbers.mean()), f"{name} std": float(numbers.std())}


def _answer(prediction: Any) -> dict[str, str | float | int]:
    """Return the best label and score of predictions that have them, and their number."""
    try:
        predictions = list(prediction)
    except TypeError:  # a map, a depth, a matte: its figures are the outputs'
        return {}
    scores = [entry.score for entry in predictions if hasattr(entry, "score")]
    if len(scores) != len(predictions):
        return {}
    best = max(predictions, key=lambda best: best.score, default=None)
    return {
        "found": len(predictions),
        "best label": str(getattr(best, "label", "")),
        "best score": max(scores, default=0.0),
        "mean score": float(np.mean(scores)) if scores else 0.0,
    }


def _numbers(rows: Sequence[Row]) -> list[str]:
    return [name for name, value in rows[0].items() if not isinstance(value, str)]


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()

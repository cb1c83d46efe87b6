"""Results of an evaluation on labelled samples, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgekit.compiler.accuracy.estimates import Estimate
from edgekit.compiler.evaluate.label_metric import Group
from edgekit.errors import printable
from edgekit.system.formats.plain_text import shortened, table
from edgekit.tensor_spec import Json

WORST = 20
"""Maximum number of samples in the list of the worst."""
SHOWN_WORST, SHOWN_GROUPS = 5, 10
"""Maximum number of worst samples and of classes in a short text."""
LEAST_OF_CLASS = 5
"""Minimum number of labelled objects of a class in a short text: the share of fewer says little."""


@dataclass(frozen=True)
class VariantAccuracy:
    """Accuracy of one variant, or of the source model.

    Attributes:
        variant: Name of the variant; the file of a model.
        status: ``evaluated``, or ``not run: REASON``.
        score: The metric. None if it was not run.
        loss: How much worse it is than the reference. None for the reference itself.
        groups: Kind of part, e.g. ``class`` -> name -> its score.
        worst: Worst samples, each with its fault. Of rows after the reference: samples that are worse than
            with it.
    """

    variant: str
    status: str = "evaluated"
    score: Estimate | None = None
    loss: Estimate | None = None
    groups: Mapping[str, Mapping[str, Group]] = field(default_factory=dict)
    worst: Sequence[tuple[str, str]] = ()

    def as_json(self) -> dict[str, Json]:
        groups = {
            kind: {name: {"value": round(one.value, 5), "count": one.labelled} for name, one in parts.items()}
            for kind, parts in self.groups.items()
        }
        return {
            "variant": self.variant,
            "status": self.status,
            "score": self.score and self.score.as_json(),
            "loss": self.loss and self.loss.as_json(),
            "groups": groups,
            "worst": [{"sample": name, "fault": fault} for name, fault in self.worst],
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> VariantAccuracy:
        """Return the row that :meth:`as_json` gave; raises as :meth:`Evaluation.from_json`."""
        score, loss = (
            None if row[name] is None else Estimate(*(float(row[name][end]) for end in Estimate._fields))
            for name in ("score", "loss")
        )
        groups = {
            printable(kind): {
                printable(name): Group(float(one["value"]), int(one["count"])) for name, one in parts.items()
            }
            for kind, parts in row["groups"].items()
        }
        worst = [(printable(one["sample"]), printable(one["fault"])) for one in row["worst"]]
        return cls(printable(row["variant"]), printable(row["status"]), score, loss, groups, worst)


class Table(NamedTuple):
    """Table of texts.

    Attributes:
        columns: Headings.
        rows: Cells of each row.
        more: Number of rows that are left out, in words.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    more: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Accuracy of all variants on labelled samples.

    Attributes:
        title: Title of the card.
        metric: Name of the metric, e.g. ``mAP``.
        is_error: Whether less is better.
        samples: Number of samples.
        labelled: Number of labelled objects, words or samples.
        units: What ``labelled`` counts.
        form: Format of the labels.
        notes: What was left out or assumed.
        reference: Name of the row that losses refer to; "" if nothing ran.
        variants: Rows, the reference first.
    """

    title: str
    metric: str
    is_error: bool
    samples: int
    labelled: int
    units: str
    form: str
    notes: Sequence[str]
    reference: str
    variants: Sequence[VariantAccuracy]

    @property
    def ran(self) -> bool:
        """Return whether anything could be run."""
        return any(row.score is not None for row in self.variants)

    def as_json(self) -> dict[str, Json]:
        return {
            "title": self.title,
            "metric": self.metric,
            "less_is_better": self.is_error,
            "samples": {
                "count": self.samples,
                "labelled": self.labelled,
                "units": self.units,
                "format": self.form,
                "notes": list(self.notes),
            },
            "reference": self.reference,
            "variants": [row.as_json() for row in self.variants],
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation that :meth:`as_json` gave on another machine; figures are rounded.

        Raises:
            KeyError, TypeError, ValueError: it is malformed.
        """
        samples = table["samples"]
        return cls(
            printable(table["title"]),
            printable(table["metric"]),
            bool(table["less_is_better"]),
            int(samples["count"]),
            int(samples["labelled"]),
            printable(samples["units"]),
            printable(samples["format"]),
            [printable(note) for note in samples["notes"]],
            printable(table["reference"]),
            [VariantAccuracy.from_json(row) for row in table["variants"]],
        )

    def summary(self) -> list[str]:
        """Return lines on the samples and labels."""
        counted = "" if self.units == "samples" else f" with {self.labelled} {self.units}"
        return [
            f"labels    {self.samples} samples{counted}, {self.form}",
            *(f"note      {n}" for n in self.notes),
        ]

    def tables(self, verbose: bool = False) -> list[Table]:
        """Return the tables of the variants, of their parts and of the worst samples.

        Args:
            verbose: Whether all classes and up to WORST samples are listed.
        """
        columns = ("variant", self.metric, "95 % interval", "loss", "interval of the loss")
        used = len(columns) if len(self.variants) > 1 else 3
        scores = Table(columns[:used], [row[:used] for row in self._rows()])
        ran = [row for row in self.variants if row.score is not None]
        parts = [self._parts(kind, ran, verbose) for kind in ran[0].groups] if ran else []
        tables = [scores, *parts, self._worst(verbose)]
        return [one for one in tables if one.rows]

    def text(self, verbose: bool = False) -> str:
        """Format as text; ``verbose`` as for :meth:`tables`."""
        lines = [f"  {line}" for line in self.summary()]
        for one in self.tables(verbose):
            lines += ["", *table(one.columns, one.rows), *([f"  {one.more}"] if one.more else [])]
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for row in self.variants:
            if row.score is None:
                rows.append((row.variant, row.status, "", "", ""))
                continue
            change = ("", "") if row.loss is None else _cells(row.loss)
            rows.append((row.variant, *_cells(row.score), *change))
        return rows

    def _parts(self, kind: str, ran: Sequence[VariantAccuracy], verbose: bool) -> Table:
        """Return the table of parts of one kind, of classes the worst first."""
        parts = ran[0].groups[kind]
        names = list(parts)
        if kind == "class":
            sign = -1 if self.is_error else 1
            names.sort(key=lambda name: min(sign * row.groups[kind][name].value for row in ran))
            if not verbose:
                names = [name for name in names if parts[name].labelled >= LEAST_OF_CLASS]
        shown = names if verbose else names[:SHOWN_GROUPS]
        rows = [
            (
                shortened(name, 30),
                str(parts[name].labelled),
                *(f"{row.groups[kind][name].value:.3f}" for row in ran),
            )
            for name in shown
        ]
        more = f"and {len(names) - len(shown)} better ones" if len(shown) < len(names) else ""
        return Table((kind, self.units, *(shortened(row.variant, 24) for row in ran)), rows, more)

    def _worst(self, verbose: bool) -> Table:
        rows = [
            (row.variant, shortened(name), fault)
            for row in self.variants
            for name, fault in row.worst[: WORST if verbose else SHOWN_WORST]
        ]
        return Table(("variant", "worst samples", "fault"), rows)


def _cells(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}"

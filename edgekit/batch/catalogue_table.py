"""A catalogue as one table: as text, and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.batch.build_all import Catalogue
from edgekit.batch.build_job import CatalogueRow, VariantRow
from edgekit.bundle.variant import Status, parse_status
from edgekit.system.formats.plain_text import milliseconds, size, table

COLUMNS = ("bundle", "state", "variants", "size", "fastest", "p50", "build")


def catalogue_text(catalogue: Catalogue) -> str:
    """Return the output of ``edgekit batch build``."""
    lines = table(COLUMNS, [cells(row) for row in catalogue.rows])
    failures = [line for row in catalogue.rows for line in _failure(row)]
    return "\n".join([*lines, *(["", *failures] if failures else []), "", f"  {summary(catalogue)}"])


def summary(catalogue: Catalogue) -> str:
    """Summarize the number of builds by state in a sentence."""
    states = [row["state"] for row in catalogue.rows]
    counted = [f"{states.count(state)} {state}" for state in ("built", "kept", "failed") if state in states]
    return f"{len(states)} builds in {catalogue.output}: {', '.join(counted)}"


def catalogue_page(catalogue: Catalogue, name: str) -> str:
    """Return the page of a catalogue: one HTML document that loads nothing.

    Raises:
        MissingDependency: the extra ``report`` is not installed.
    """
    from edgekit.report.page import need_packages, rendered

    need_packages()
    variants = [
        (row["name"], variant["name"], variant["status"], size(variant["size_bytes"]), _latency(variant))
        for row in catalogue.rows
        for variant in row["variants"]
    ]
    failures = [(row["name"], row["error"]["message"]) for row in catalogue.rows if row["error"]]
    return rendered(
        "catalogue.html",
        {},
        name=name,
        said=summary(catalogue),
        columns=COLUMNS,
        rows=[cells(row) for row in catalogue.rows],
        variant_columns=("bundle", "variant", "status", "size", "p50"),
        variants=variants,
        failures=failures,
    )


def cells(row: CatalogueRow) -> tuple[str, ...]:
    """Return a build as a row of the table."""
    accepted = _accepted(row["variants"])
    timed = [variant for variant in accepted if variant["p50_ms"] is not None]
    best = min(timed, key=lambda variant: variant["p50_ms"] or 0.0, default=None)
    done = row["bundle"] is not None
    return (
        row["name"],
        row["state"],
        f"{len(accepted)} of {len(row['variants'])}" if done else "-",
        size(row["size_bytes"]) if done else "-",
        best["name"] if best else "-",
        _latency(best) if best else "-",
        f"{row['seconds']:.1f} s" if done else "-",
    )


def _accepted(variants: Sequence[VariantRow]) -> list[VariantRow]:
    return [variant for variant in variants if parse_status(variant["status"])[0] is not Status.REJECTED]


def _latency(variant: VariantRow) -> str:
    return "-" if variant["p50_ms"] is None else milliseconds(variant["p50_ms"])


def _failure(row: CatalogueRow) -> list[str]:
    if row["error"] is None:
        return []
    first, *more = row["error"]["message"].splitlines() or [""]
    return [f"  failed    {row['name']}  {first}", *(f"            {line.strip()}" for line in more)]

"""Facts of a bundle for the page, from its manifest and the same sources as the text report's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from edgekit.bundle import device_evidence
from edgekit.bundle.advice import advice, machine, p50_ms, timed_on_its_kind
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.causes import CauseText, cause_texts, left_out, price
from edgekit.bundle.report import (
    basis,
    checked_evidence,
    columns_and_rows,
    kept_of,
    lowest_snr,
    lowest_snr_db,
    model_notes,
    shared_notes,
    shared_reasons,
    verified_on,
    why_rejected,
)
from edgekit.bundle.search_text import searched
from edgekit.bundle.shrunk_path import ShrunkPath, shrunk_paths
from edgekit.bundle.source_names import SourceNames, read_source_names
from edgekit.bundle.variant import Variant
from edgekit.errors import printable, with_local_lines
from edgekit.report.choices import Offer, offers_of
from edgekit.system.formats.plain_text import milliseconds, size
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Json

EXACT_DB = 200.0
"""Where an output that equals the reference is drawn."""


@dataclass(frozen=True)
class Point:
    """A variant as it is drawn.

    Attributes:
        latency_ms: Median of a run on the machine of the build.
        accuracy: Accuracy by the metric of the chart.
        scored: Whether that was measured; otherwise it is the float model's own, see :func:`accuracy_of`.
        size_mb: Size of its files in MB.
        front: No other variant here is as good in all three and better in one.
        rejected: Whether the bundle is without it.
        summary: All of it in words.
    """

    name: str
    profile: str
    latency_ms: float
    accuracy: float
    scored: bool
    size_mb: float
    front: bool
    rejected: bool
    summary: str


@dataclass(frozen=True)
class SearchCandidate:
    """A candidate of an int8 search; accuracy on the validation samples.

    Attributes:
        choice: Description of the quantization.
        accuracy: Accuracy by the metric of the search; None if it could not be built or run.
        snr_db: SNR of the worst output in dB.
        ratio: Time over the float parent's; None if it was not timed.
        plain: Whether ranges are minimum and maximum, and weights are rounded to the nearest.
        lost: Why it is not in the bundle; "" if it is.
    """

    choice: str
    accuracy: float | None
    snr_db: float | None
    ratio: float | None
    plain: bool
    lost: str


@dataclass(frozen=True)
class SearchFacts:
    """The int8 search of one profile.

    Attributes:
        summary: Number of candidates, in words.
        metric, unit: Metric and unit of the candidates' accuracy.
        candidates: Candidates, the chosen ones first, then by time.
        damage: (block, SNR in dB of the outputs with this block alone quantized, whether it stays float in
            every int8 variant that is kept, the classes of cause that are known of it), the worst first.
        price: Gain and cost of the chosen candidate over plain int8, in words; "" if unknown.
        floats: (int8 variant, the blocks that stay float in it).
    """

    profile: str
    summary: str
    metric: str
    unit: str
    candidates: tuple[SearchCandidate, ...]
    damage: tuple[tuple[str, float, bool, str], ...]
    price: str
    floats: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Losses:
    """Why a variant loses accuracy.

    Attributes:
        causes: Causes, the worst first.
        summary: Result of plain int8, cost of the repairs, and omitted causes, in words.
    """

    variant: str
    causes: tuple[CauseText, ...]
    summary: str


class StageFacts(NamedTuple):
    """Later stage of a cascade: its title, the table of its variants (times of one crop), and its basis."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    basis: str


@dataclass(frozen=True)
class ReportFacts:
    """All that the page says without running anything. Texts are plain: the template escapes them."""

    title: str
    offers: tuple[Offer, ...]
    advice: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    rejected: tuple[tuple[str, str, str], ...]
    paths: tuple[ShrunkPath, ...]
    metric: str
    unit: str
    points: tuple[Point, ...]
    not_drawn: tuple[tuple[str, str], ...]
    searches: tuple[SearchFacts, ...]
    losses: tuple[Losses, ...]
    notes: tuple[tuple[str, str], ...]
    basis: str
    devices: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    stages: tuple[StageFacts, ...]
    provenance: tuple[tuple[str, str], ...]


def facts_of(bundle: Bundle) -> ReportFacts:
    """Return the facts of a bundle for its report.

    Raises:
        BundleError: its evidence, which is open JSON, is not what a build writes.
    """
    with checked_evidence(bundle.name):
        return _facts(bundle, bundle.manifest, bundle.variants)


def _facts(bundle: Bundle, manifest: Mapping[str, Json], variants: Sequence[Variant]) -> ReportFacts:
    accepted, names = kept_of(variants), read_source_names(bundle)
    columns, rows = columns_and_rows(accepted)
    metric, unit = _metric([v for v in variants if p50_ms(v) is not None])
    points, not_drawn = _points(variants, metric)
    notes = [("", note) for note in model_notes(manifest)]
    if bundle.stages:
        notes.insert(
            0, ("", "a frame takes the time of the first stage, and for each crop that of the later ones")
        )
    notes += [(", ".join(said_of), note) for note, said_of in shared_notes(accepted).items()]
    notes += [(", ".join(said_of), cause) for cause, said_of in shared_reasons(variants).items()]
    return ReportFacts(
        title=str((bundle.card or {}).get("title", PurePath(bundle.name).name)),
        offers=offers_of(manifest, variants),
        advice=advice(manifest, variants),
        columns=columns,
        rows=tuple(tuple(map(_local, row)) for row in rows),
        rejected=tuple(
            (v.name, kind, _local(cause)) for v in variants if v.rejected for kind, cause in [why_rejected(v)]
        ),
        paths=tuple(shrunk_paths(variants)),
        metric=metric,
        unit=unit,
        points=points,
        not_drawn=tuple((name, _local(cause)) for name, cause in not_drawn),
        searches=tuple(_search(v, variants, names) for v in variants if v.evidence.get("search")),
        losses=tuple(_losses(v, variants, names) for v in variants if v.evidence.get("causes")),
        notes=tuple((names, _local(note)) for names, note in notes),
        basis=basis(manifest, accepted),
        devices=tuple((title, tuple(rows)) for title, rows in device_evidence.tables(manifest)),
        stages=tuple(later_stages(bundle)),
        provenance=_provenance(bundle, manifest),
    )


def later_stages(bundle: Bundle) -> Iterator[StageFacts]:
    """Yield the facts of each later stage; none if the bundle is one model."""
    for name in bundle.stages:
        stage = bundle.stage(name)
        accepted = kept_of(stage.variants)
        columns, rows = columns_and_rows(accepted)
        title = printable(f"{name}: {(stage.card or {}).get('title', stage.name)}")
        texts = tuple(tuple(map(_local, row)) for row in rows)
        yield StageFacts(title, columns, texts, basis(stage.manifest, accepted))


def _local(text: str) -> str:
    return printable(with_local_lines(text))


def _metric(variants: Sequence[Variant]) -> tuple[str, str]:
    """Return the metric and unit of the accuracy axis: the task's metric on labels, or the agreement with
    the float model, if one of these timed variants has such a score; otherwise the SNR."""
    for name in ("task", "agreement"):
        for variant in variants:
            score = variant.evidence.get(name)
            if score and not score["unit"] and score["value"] is not None:
                return str(score["metric"]), ""
    return "SNR", "dB"


def accuracy_of(variant: Variant, metric: str, whole: float) -> tuple[float | None, bool]:
    """Return a variant's accuracy by a metric, and whether that was measured.

    A float variant is judged by its SNR alone, and no task's score is measured of it. Next to variants with a
    score it stands where the float model stands, marked as not scored.

    Args:
        variant: Kept or rejected.
        metric: ``SNR``, or that of a score.
        whole: The float model's own score.
    """
    if metric == "SNR":
        snr_db = lowest_snr_db(variant)
        return (None if snr_db is None or math.isnan(snr_db) else min(snr_db, EXACT_DB)), True
    for name in ("task", "agreement"):
        score = variant.evidence.get(name)
        if score and score["metric"] == metric:
            return score["value"], True
    unscored = precision_of(variant.precision).is_float and bool(variant.evidence.get("accuracy"))
    return (whole, False) if unscored and not variant.rejected else (None, False)


def _points(variants: Sequence[Variant], metric: str) -> tuple[tuple[Point, ...], list[tuple[str, str]]]:
    """Return the points to draw, and the variants that cannot be drawn with the reason."""
    task = next((t for v in variants if (t := v.evidence.get("task")) and t["metric"] == metric), None)
    whole = float(task["float"]) if task else 1.0
    points: list[Point] = []
    not_drawn: list[tuple[str, str]] = []
    for variant in variants:
        latency_ms = p50_ms(variant) if timed_on_its_kind(variant) else None
        accuracy, scored = accuracy_of(variant, metric, whole)
        if latency_ms is None or accuracy is None:
            none = "its outputs are not finite" if lowest_snr(variant) == "not finite" else f"no {metric}"
            missing = "not timed on the machine of the build" if latency_ms is None else none
            missing = missing if timed_on_its_kind(variant) else "timed on another kind of processor"
            not_drawn.append((variant.name, variant.status if variant.rejected else missing))
            continue
        size_mb = variant.evidence["size_bytes"] / 1e6
        figure = f"{metric} {accuracy:.3f}" if metric != "SNR" else f"SNR {lowest_snr(variant)}"
        description = (
            f"{variant.name}: {milliseconds(latency_ms)} on {machine(variant)}, "
            f"{figure if scored else f'not scored, SNR {lowest_snr(variant)}'}, "
            f"{size(variant.evidence['size_bytes'])}; "
            f"{variant.status if variant.rejected else verified_on(variant)}"
        )
        points.append(
            Point(
                variant.name,
                variant.profile,
                latency_ms,
                float(accuracy),
                scored,
                size_mb,
                False,
                variant.rejected,
                printable(description),
            )
        )
    accepted = [point for point in points if not point.rejected]
    marked = [_with_front(point, accepted) for point in points]
    return tuple(marked), not_drawn


def _with_front(point: Point, points: Sequence[Point]) -> Point:
    def cost(point: Point) -> tuple[float, float, float]:
        return point.latency_ms, -point.accuracy, point.size_mb

    ref = cost(point)
    beaten = any(
        all(a <= b for a, b in zip(cost(other), ref, strict=True)) and cost(other) != ref for other in points
    )
    return Point(**{**vars(point), "front": not point.rejected and not beaten})


def _search(variant: Variant, variants: Sequence[Variant], names: SourceNames) -> SearchFacts:
    search = variant.evidence["search"]
    figures = [candidate["agreement"] for candidate in search["tried"] if candidate.get("agreement")]
    metric, unit = (figures[0]["metric"], figures[0]["unit"]) if figures else ("SNR", "dB")
    candidates = [_candidate(candidate) for candidate in search["tried"]]
    candidates.sort(key=lambda c: (bool(c.lost), c.ratio is None, c.ratio or 0.0))
    siblings = [v for v in kept_of(variants) if v.profile == variant.profile]
    siblings = [v for v in siblings if precision_of(v.precision).stage == "searched" and v.shrunk is None]
    siblings = [v for v in siblings if v.evidence.get("quantization")]
    floats = [[str(name) for name in v.evidence["quantization"]["float"]["names"]] for v in siblings]
    repaired = set.intersection(*map(set, floats)) if floats else set()
    damage = sorted((search.get("damage") or {}).items(), key=lambda item: item[1])
    return SearchFacts(
        variant.profile,
        searched(search),
        str(metric),
        str(unit),
        tuple(candidates),
        tuple(
            (_called(str(name), names), float(snr_db), name in repaired, _kinds(variant, name))
            for name, snr_db in damage
        ),
        _price(candidates, str(metric), str(unit)),
        tuple(
            (v.name, ", ".join(_called(block, names) for block in blocks))
            for v, blocks in zip(siblings, floats, strict=True)
            if blocks
        ),
    )


def _kinds(variant: Variant, block: str) -> str:
    causes = (variant.evidence.get("causes") or {"found": ()})["found"]
    return ", ".join(dict.fromkeys(str(cause["kind"]) for cause in causes if block in cause["nodes"]))


def _losses(variant: Variant, variants: Sequence[Variant], names: SourceNames) -> Losses:
    summary = "; ".join(text for text in (price(variant, variants), left_out(variant)) if text)
    return Losses(variant.name, tuple(cause_texts(variant, names.called)), f"{summary}." if summary else "")


def _called(block: str, names: SourceNames) -> str:
    """Return a unique name of a block: the source node that makes its result, with its value."""
    node = names.maker(block)
    return block if node is None or node.name == block else f"{node.name} ({block})"


def _candidate(candidate: Mapping[str, Any]) -> SearchCandidate:
    agreement = candidate.get("agreement")
    return SearchCandidate(
        str(candidate["choice"]),
        None if not agreement or agreement["value"] is None else float(agreement["value"]),
        candidate.get("snr_db"),
        candidate.get("ratio"),
        (candidate["recipe"]["ranges"], candidate["recipe"]["rounding"]) == ("minmax", "nearest"),
        printable(str(candidate["lost"])),
    )


def _price(candidates: Sequence[SearchCandidate], metric: str, unit: str) -> str:
    """Compare the most accurate chosen candidate with plain int8."""
    chosen = [c for c in candidates if not c.lost and c.accuracy is not None]
    plain = next((c for c in candidates if c.plain and c.accuracy is not None), None)
    if not chosen or plain is None:
        return ""
    best = max(chosen, key=lambda c: c.accuracy or 0.0)
    if best is plain:
        return ""
    return f"Plain int8 ({plain.choice}) has {_figures(plain, metric, unit)}; {best.choice} has " + (
        f"{_figures(best, metric, unit)}."
    )


def _figures(candidate: SearchCandidate, metric: str, unit: str) -> str:
    accuracy = f"{candidate.accuracy:.1f} {unit}" if unit else f"{candidate.accuracy:.3f}"
    time = "" if candidate.ratio is None else f" at {candidate.ratio:.2f}x the time of the float parent"
    return f"{metric} {accuracy}{time}"


def _provenance(bundle: Bundle, manifest: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    source = manifest["source"]
    tools = {"edgekit": manifest["edgekit"], **manifest["tools"]}
    rows = [
        ("bundle", f"{PurePath(bundle.name).name}, sha256 {bundle.digest}"),
        ("source", f"{source['file']}, opset {source['opset']}, {source['nodes']} nodes"),
        ("source sha256", str(source["sha256"])),
        *(("input", str(spec)) for spec in bundle.inputs),
        *(("output", str(spec)) for spec in bundle.outputs),
        *(("later stage", name) for name in bundle.stages),
        ("samples", str(manifest["samples"].get("origin", ""))),
        ("graph passes", ", ".join(manifest["passes"]) or "none"),
        ("built by", ", ".join(f"{tool} {version}" for tool, version in tools.items())),
    ]
    return tuple((name, printable(value)) for name, value in rows)

"""The text report of a bundle: the table of variants, then rejected variants and why, then notes.

Pure text from the manifest, so the device can print it as well.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.bundle import device_evidence
from edgekit.bundle.advice import advice, machine
from edgekit.bundle.cost_text import device_notes
from edgekit.bundle.draft_entry import draft_evidence
from edgekit.bundle.label_text import label_notes
from edgekit.bundle.search_text import searched
from edgekit.bundle.shrunk_path import shrunk_paths
from edgekit.bundle.variant import Variant
from edgekit.errors import BundleError, with_local_lines
from edgekit.system.formats.plain_text import milliseconds, size, table
from edgekit.system.formats.shown import html_table, preformatted
from edgekit.system.python_calls import spoken_errors
from edgekit.target.model_packages import PROVIDER
from edgekit.target.precisions import FULL_PRECISION, precision_of
from edgekit.tensor_spec import Json

TIME, TOKEN_TIME = "p50 at build", "a token at build"
"""Headings of times of a run and of a token. The machine of the build took them; :func:`basis` names it."""
COLUMNS = ("target", "variant", "size", "SNR", TIME, "verified")


class Report(str):
    """Text of the report; called with a path it writes the whole report as a page.

    print(bundle.report)
    bundle.report("report.html")
    """

    _html: Callable[[], str]
    _write: Callable[..., None]

    def __new__(cls, text: str, html: Callable[[], str], write: Callable[..., None]) -> Report:
        report = super().__new__(cls, text)
        report._html, report._write = html, write
        return report

    def __call__(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a self-contained HTML page.

        Args:
            path: File to write; it ends in ``.html``.
            options: ``samples``, ``labelled``, ``explain`` and ``accelerator`` of ``write_report``.

        Raises:
            UsageError: the file cannot be written, or an option does not fit the bundle.
            MissingDependency: the packages that draw the page are not installed.
        """
        with spoken_errors():
            self._write(Path(path), **options)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._html()


def render_bundle(
    name: str, manifest: Mapping[str, Json], variants: Sequence[Variant], *, verbose: bool = False
) -> str:
    """Return the report of a bundle: result, evidence, notes.

    Args:
        verbose: List every candidate of the int8 search, and not one line for each target.

    Raises:
        BundleError: its evidence, which is open JSON, is not what a build writes.
    """
    with checked_evidence(name):
        return with_local_lines(_rendered(manifest, variants, verbose))


@contextmanager
def checked_evidence(name: str) -> Iterator[None]:
    """Raise BundleError if the evidence that the block reads, which is open JSON, is not what a build
    writes."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise BundleError(f"{name}: invalid evidence: {type(problem).__name__}: {problem}") from problem


def _rendered(manifest: Mapping[str, Json], variants: Sequence[Variant], verbose: bool) -> str:
    accepted = kept_of(variants)
    lines = table(*columns_and_rows(accepted))
    rejected = [v for v in variants if v.rejected]
    if rejected:
        lines += ["", *(_rejected(v) for v in rejected)]
    lines += _adapters(accepted) + _draft(manifest)
    lines += _paths(variants) + _searched(variants, verbose)
    shared, model_lines = shared_notes(accepted), [f"  note      {note}" for note in model_notes(manifest)]
    if shared or model_lines:
        lines += ["", *model_lines]
        lines += [f"  note      {', '.join(names)}  {note}" for note, names in shared.items()]
    lines += ["", f"  {basis(manifest, accepted)}", *device_evidence.lines(manifest)]
    return "\n".join(lines)


def _adapters(variants: Sequence[Variant]) -> list[str]:
    rows = []
    for variant in variants:
        for name, figures in variant.evidence.get("adapters", {}).items():
            generation, snr_db = figures["generation"], figures["logits"]["snr_db"]
            db = "exact" if snr_db is None else f"{snr_db:.1f} dB"
            rows.append([name, variant.name, f"{generation['perplexity']:.2f}", _excess(generation), db])
    return ["", *table(["adapter", "variant", "perplexity", "over float's", "SNR"], rows)] if rows else []


def _draft(manifest: Mapping[str, Json]) -> list[str]:
    text, variants = draft_evidence(manifest)
    if not text:
        return []
    lost = [_rejected(variant) for variant in variants if variant.rejected]
    return ["", f"  draft     {text}", *table(*columns_and_rows(kept_of(variants))), *lost]


def _paths(variants: Sequence[Variant]) -> list[str]:
    lines: list[str] = []
    for path in (path for path in shrunk_paths(variants) if path.trained):
        lines += ["", f"  path to {path.name}, on the samples for testing", *table(path.columns, path.rows)]
    return lines


def _rejected(variant: Variant) -> str:
    kind, reason = why_rejected(variant)
    return f"  {kind:<9} {variant.name}  {reason}"


def why_rejected(variant: Variant) -> tuple[str, str]:
    """``rejected``, or ``bug`` if it was lost to one; and the reason."""
    fault = variant.evidence.get("fault")
    if not fault:
        return "rejected", variant.reason
    trace_note = f"; traceback: {fault['traceback']} in EdgeKit's cache folder" if fault["traceback"] else ""
    return "bug", f"{variant.reason}{trace_note}"


def kept_of(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants that the build did not reject."""
    return [v for v in variants if not v.rejected]


def columns_and_rows(variants: Sequence[Variant]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table of variants: a column for each score that any of them has."""
    scores = [name for name in ("task", "agreement") if any(_score(v, name) for v in variants)]
    counts = any("kept" in v.evidence for v in variants)
    headings = [*(_heading(variants, name) for name in scores), *(["kept"] if counts else [])]
    writes = any("generation" in v.evidence for v in variants)
    kinds = any(v.evidence.get("generation", {}).get("kinds") for v in variants)
    headings += ["perplexity", "over float's", *(["expected"] if kinds else []), "top-1"] if writes else []
    columns = [TOKEN_TIME if name == TIME and writes else name for name in COLUMNS[2:]]
    return (*COLUMNS[:2], *headings, *columns), [_row(v, scores, counts, writes, kinds) for v in variants]


def render_html(name: str, manifest: Mapping[str, Json], variants: Sequence[Variant]) -> str:
    """Render a notebook's HTML: the sentences that ``edgekit report`` begins with, the table, and the rest of
    the text."""
    from html import escape  # here: no device needs it

    text = render_bundle(name, manifest, variants)
    with checked_evidence(name):
        first = "".join(
            f'<p style="margin:0 0 2px">{escape(line)}</p>' for line in advice(manifest, variants)
        )
    rest = text.partition("\n\n")[2]
    return first + html_table(*columns_and_rows(kept_of(variants))) + preformatted(rest)


def lowest_snr_db(variant: Variant) -> float | None:
    """Return the SNR of the worst output, or of the worst part of one, in dB: infinity if all equal the
    reference, NaN if one is not finite, None if it was not measured."""
    accuracy = variant.evidence.get("accuracy")
    if variant.shrunk is not None and (shrunk := variant.evidence.get("shrunk")):
        return None if shrunk["snr_db"] is None else float(shrunk["snr_db"])
    if not accuracy:
        return None
    if any(error["max_abs"] is None for error in accuracy.values()):
        return math.nan
    figures = [error["snr_db"] for error in accuracy.values() if error["snr_db"] is not None]
    score = variant.evidence.get("agreement")
    if score and score["unit"] and score["value"] is not None:
        figures.append(score["value"])
    return float(min(figures, default=math.inf))


def lowest_snr(variant: Variant) -> str:
    """Return the SNR of the worst output in words."""
    snr_db = lowest_snr_db(variant)
    if snr_db is None:
        return "-"
    return "not finite" if math.isnan(snr_db) else "exact" if snr_db == math.inf else f"{snr_db:.1f} dB"


def verified_on(variant: Variant) -> str:
    """Return the last column: the engine that verified a variant, or the reason why it was not run."""
    return f"yes, {variant.reason or 'verified'}" if variant.verified else variant.status


def _score(variant: Variant, name: str) -> Json:
    """Return a figure of ``agreement`` or ``task``; None if there is none, or if it repeats the SNR."""
    score = variant.evidence.get(name)
    return score if score and not score["unit"] else None


def _heading(variants: Sequence[Variant], name: str) -> str:
    """Return the name of the metric, e.g. ``self-mAP``: the same for all variants of a bundle."""
    return str(next(score["metric"] for v in variants if (score := _score(v, name))))


def _cell(variant: Variant, name: str) -> str:
    score = _score(variant, name)
    if not score:
        return "-"
    return f"{score['value']:.3f}" if score["value"] is not None else "not finite"


def _kept_findings(variant: Variant) -> str:
    """Return how many of the float model's sure findings it keeps."""
    counts = variant.evidence.get("kept")
    return f"{counts['kept']} of {counts['of']}" if counts else "-"


def _text_figures(variant: Variant, kinds: bool) -> list[str]:
    """Return a language model's perplexity, how much it exceeds the float model's on each kind of text, how
    much it is expected to on the worst one, and the share of tokens at which both agree."""
    scores = variant.evidence.get("generation")
    if not scores:
        return ["-"] * (4 if kinds else 3)
    perplexity, agreement = scores["perplexity"], scores["agreement"]
    return [
        "not finite" if perplexity is None else f"{perplexity:.2f}",
        _excess(scores),
        *([_expected(scores)] if kinds else []),
        "-" if agreement is None else f"{agreement:.3f}",
    ]


def _excess(scores: Mapping[str, Any]) -> str:
    """Return how much the perplexity exceeds the float model's, by kind of text if there are several."""
    if kinds := scores.get("kinds"):
        return ", ".join(f"{kind} {_excess(figures)}" for kind, figures in sorted(kinds.items()))
    perplexity, whole = scores["perplexity"], scores.get("float_perplexity")
    return "-" if perplexity is None or not whole else f"{100 * (perplexity / whole - 1):+.1f} %"


def _expected(scores: Mapping[str, Any]) -> str:
    """Return by how much perplexity is expected to exceed the float model's, by the largest divergence."""
    nats = [figures["divergence"] for figures in scores.get("kinds", {}).values()]
    return f"+{100 * math.expm1(max(nats)):.1f} %" if nats and None not in nats else "-"


def _searched(variants: Sequence[Variant], verbose: bool) -> list[str]:
    """Describe the search for int8, a line for each target, and the reasons why blocks stay float."""
    lines: list[str] = []
    for variant in variants:
        search = variant.evidence.get("search")
        if search:
            lines += _search_lines(variant.profile, search, verbose)
    because = shared_reasons(variants)
    lines += [f"  because   {', '.join(names)}  {reason}" for reason, names in because.items()]
    return ["", *lines] if lines else []


def shared_reasons(variants: Sequence[Variant]) -> dict[str, list[str]]:
    """Return each reason why blocks stay float -> the names of the kept variants that it applies to."""
    because: dict[str, list[str]] = {}
    for variant in kept_of(variants):
        for reason in variant.evidence.get("quantization", {}).get("because", []):
            because.setdefault(reason, []).append(variant.name)
    return because


def _search_lines(profile: str, search: Json, verbose: bool) -> list[str]:
    lines = [f"  searched  {profile}  {searched(search)}"]
    if verbose:
        for candidate in search["tried"]:
            lines.append(f"  candidate {profile}  {candidate['choice']}: {candidate['lost'] or 'chosen'}")
        lines.append("            compared on the validation samples; the table is of the test samples")
    return lines


def _row(variant: Variant, scores: Sequence[str], counts: bool, writes: bool, kinds: bool) -> tuple[str, ...]:
    timing = variant.evidence.get("timing")
    return (
        variant.profile,
        _precision_text(variant),
        *(_cell(variant, name) for name in scores),
        *([_kept_findings(variant)] if counts else []),
        *(_text_figures(variant, kinds) if writes else []),
        size(variant.evidence["size_bytes"]),
        lowest_snr(variant),
        milliseconds(timing["p50_ms"]) if timing and not timing.get("elsewhere") else "-",
        verified_on(variant),
    )


def _precision_text(variant: Variant) -> str:
    """Return a variant's precision, and how much smaller its model is; also the name of one that came in a
    model package."""
    if PROVIDER in variant.options:
        return f"{variant.name} ({variant.precision})"
    if variant.shrunk is None:
        return variant.precision
    return f"{variant.precision}, {100 * variant.smaller_by:.0f} % smaller"


NOT_PROVED = "not proved on "
"""First words of the note that says how many more samples would prove a variant."""


def shared_notes(variants: Sequence[Variant]) -> dict[str, list[str]]:
    """Return each note on variants -> the names of the variants that it applies to."""
    names_by_note: dict[str, list[str]] = {}
    tokens = max(
        (v.evidence["generation"].get("tokens", 0) for v in variants if "generation" in v.evidence), default=0
    )
    for variant in variants:
        for note in notes(variant, tokens):
            names_by_note.setdefault(note, []).append(variant.name)
    return names_by_note


def _less_text(variant: Variant, tokens: int) -> Iterator[str]:
    """Return notes on variants whose perplexity was measured on fewer tokens than the others'."""
    generation = variant.evidence.get("generation")
    if generation and generation["perplexity"] is not None and generation.get("tokens", tokens) < tokens:
        whole = f"the float model's is {generation['float_perplexity']:.2f} there"
        yield f"perplexity on the first {generation['tokens']} of {tokens} tokens; {whole}"


def notes(variant: Variant, tokens: int = 0) -> Iterable[str]:
    """Return the notes of the compiler and the engine about a variant, with reasons.

    Args:
        tokens: Most tokens that the perplexity of a variant of the bundle was measured on.
    """
    left = variant.evidence.get("runner", {}).get("outside_delegate")
    if left:
        ops = ", ".join(f"{count} {op}" for op, count in left.items())
        yield f"not on the engine's fast path: {ops}"
    if larger := variant.evidence.get("larger"):
        yield f"larger than the source's {size(larger['source_weight_bytes'])} of weights: " + "; ".join(
            larger["because"]
        )
    if not_proved := variant.evidence.get("agreement", {}).get("not_proved"):
        yield str(not_proved)
    yield from _less_text(variant, tokens)
    yield from device_notes(variant)
    transposes = variant.evidence.get("compile", {}).get("transposes")
    if transposes:
        moved_size = size(sum(t["size_bytes"] for t in transposes))
        first = transposes[0]["why"]
        others = f" (and {len(transposes) - 1} more)" if len(transposes) > 1 else ""
        yield f"transposes left: {len(transposes)}, {moved_size}: {first}{others}"
    wide = variant.evidence.get("compile", {}).get("float32_nodes")
    if wide:
        others = f" (and {len(wide) - 1} more)" if len(wide) > 1 else ""
        yield f"float32 within {variant.precision}: {wide[0]['node']}{others}: {wide[0]['why']}"
    yield from map(str, variant.evidence.get("compile", {}).get("notes", ()))
    if by_shape := variant.evidence.get("shapes"):
        yield _shapes(by_shape, variant.options.get("range"))
    if variant.shrunk is not None:
        yield "a smaller model: run by name, for a Budget, or where nothing else runs"
    if facts := variant.evidence.get("deferral"):
        yield (
            f"{facts['small']} answers, {facts['large']} where it is unsure: {facts['deferred']:.1%} of "
            f"{facts['samples']} samples; at most {facts['bound']:.2%} of the answers differ from "
            f"{facts['large']} with {facts['confidence']:.0%} confidence; the time is the expected mean"
        )
        return
    if "smaller_model" in variant.evidence:
        yield "another, smaller model: it answers alone only where nothing else does"
        return
    for name, error in variant.evidence.get("accuracy", {}).items():
        if (
            variant.precision == FULL_PRECISION
            and variant.shrunk is None
            and error["snr_db"] is not None
            and error["snr_db"] < 100
        ):
            note = "the output saturates" if error["limit_db"] == 60 else "the model amplifies rounding here"
            yield f"output {name}: SNR {error['snr_db']} dB; {note}, so its limit is {error['limit_db']:g} dB"


def _shapes(figures: Json, of_range: Json) -> str:
    """Return the shapes with the accuracy and the time at each; of a range, those that were tested."""
    texts = [
        f"{row['shape']} "
        + ("unequal" if row.get("unequal") else "equal" if row["snr_db"] is None else f"{row['snr_db']} dB")
        + (f" in {milliseconds(row['p50_ms'])}" if "p50_ms" in row else "")
        + (f" ({row['of_one_shape']:.2f}x a file of this shape)" if "of_one_shape" in row else "")
        for row in figures
    ]
    if of_range:
        low, high = of_range["sizes"]
        return f"runs at every size from {low} to {high}; tested at {'; '.join(texts)}"
    return f"runs at the shape of its inputs: {'; '.join(texts)}"


def model_notes(manifest: Mapping[str, Json]) -> Iterable[str]:
    """Yield the build's decisions that the model and the options leave open."""
    assumed = manifest.get("options", {}).get("assumed_shapes")
    if assumed:
        yield str(assumed)
    yield from label_notes(manifest)
    for name, share in manifest.get("samples", {}).get("nan", {}).items():
        yield (
            f"{100 * share:.3g} % of the source model's output {name} is NaN on these samples, where the "
            "comparison proves nothing: check the model's weights and the samples"
        )
    for name, choice in manifest.get("samples", {}).get("ranges", {}).items():
        low, high = choice["range"]
        yield f"random values of {name} go from {low:g} to {high:g}: {choice['why']}"


def basis(manifest: Mapping[str, Json], variants: Sequence[Variant]) -> str:
    """Describe the basis of the figures: the samples, and the processor."""
    timings = [v.evidence["timing"] for v in variants if v.evidence.get("timing")]
    machines = dict.fromkeys(machine(v) for v in variants if v.evidence.get("timing"))
    basis = f"compared with the source model on {manifest['samples']['origin']}"
    if manifest["samples"].get("one_value"):
        basis += ", which are constant and prove little: use typical inputs"
    held_out = {v.evidence["agreement"]["samples"] for v in variants if v.evidence.get("agreement")}
    if held_out and "random" not in manifest["samples"]["origin"]:
        scored = [v for v in variants if v.evidence.get("agreement")]
        kind = next((v.precision for v in variants if precision_of(v.precision).stage == "quantized"), "int8")
        smaller = [v for v in scored if v.shrunk is not None]
        kinds = [*([kind] if len(smaller) < len(scored) else []), *(["smaller models"] if smaller else [])]
        basis += f"; {' and '.join(kinds)} on {max(held_out)} of them held out for testing"
        if any(_score(v, "agreement") for v in scored):
            basis += f"; {_heading(scored, 'agreement')} of 1: predictions as the float model's"
    if any(v.evidence.get("quantization", {}).get("samples", {}).get("not_held_out") for v in variants):
        basis += ", or on all where there were too few to hold some out: use 64 to 128"
    task = next((score for v in variants if (score := _score(v, "task")) and "float" in score), None)
    basis += f"; {task['metric']} of the float model {task['float']:.3f}" if task else ""
    no_int8 = manifest.get("options", {}).get("no_int8")
    basis += f"; int8 was skipped: {no_int8}" if no_int8 else ""
    times = sorted({t["measured"] for t in timings if "measured" in t})
    period = f", {' to '.join(dict.fromkeys((times[0], times[-1])))} UTC" if times else ""
    return f"{basis}; timed on {'; '.join(machines)}{period}" if machines else basis

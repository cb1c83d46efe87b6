"""What people read about a bundle: the table of variants, then what was rejected and why, then the notes.

Pure text from the manifest, so the device can print it as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import BundleError
from edgekit.target import Json

if TYPE_CHECKING:
    from edgekit.bundle import Bundle, Variant

COLUMNS = ("target", "variant", "size", "SNR", "p50 here", "verified")


def render_bundle(bundle: Bundle) -> str:
    """The report of a bundle: answer, evidence, notes.

    Raises:
        BundleError: its evidence, which is open JSON, is not what a build writes.
    """
    try:
        return _rendered(bundle)
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise BundleError(
            f"{bundle.name}: its evidence is not what `edgekit build` writes: "
            f"{type(problem).__name__}: {problem}"
        ) from problem


def _rendered(bundle: Bundle) -> str:
    variants = bundle.variants
    kept = [v for v in variants if not v.status.startswith("rejected")]
    lines = table(COLUMNS, [_row(v) for v in kept])
    rejected = [v for v in variants if v.status.startswith("rejected")]
    if rejected:
        lines += ["", *(f"  rejected  {v.name}  {v.status.removeprefix('rejected: ')}" for v in rejected)]
    notes: dict[str, list[str]] = {}
    for variant in kept:
        for note in _notes(variant):
            notes.setdefault(note, []).append(variant.name)
    if notes:
        lines += ["", *(f"  note      {', '.join(names)}  {note}" for note, names in notes.items())]
    lines += ["", f"  {_basis(bundle.manifest, kept)}"]
    return "\n".join(lines)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns aligned on the left, two spaces apart.

    >>> print(*table(("a", "b"), [("long", "x"), ("s", "y")]), sep="\\n")
      a     b
      long  x
      s     y
    """
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    return [
        "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [columns, *rows]
    ]


def size(size_bytes: int) -> str:
    """Bytes as people read them.

    >>> size(3_678_356), size(512_000), size(900)
    ('3.7 MB', '0.51 MB', '0.9 kB')
    """
    if size_bytes < 100_000:
        return f"{size_bytes / 1e3:.1f} kB"
    return f"{size_bytes / 1e6:.{1 if size_bytes >= 1e6 else 2}f} MB"


def milliseconds(value: float) -> str:
    """A latency: three digits, in ms below a second.

    >>> milliseconds(7.2345), milliseconds(0.04), milliseconds(1234.0)
    ('7.23 ms', '0.04 ms', '1.23 s')
    """
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def lowest_snr(variant: Variant) -> str:
    """The SNR of the worst output; ``exact`` where every output equals the reference."""
    accuracy = variant.evidence.get("accuracy")
    if not accuracy:
        return "-"
    figures = [error["snr_db"] for error in accuracy.values() if error["snr_db"] is not None]
    if any(error["max_abs"] is None for error in accuracy.values()):
        return "not finite"
    return f"{min(figures):.1f} dB" if figures else "exact"


def verified_on(variant: Variant) -> str:
    """The last column: where a variant was verified, or why it was not run."""
    if variant.status.startswith("verified"):
        return "yes, " + variant.status.removeprefix("verified ")
    return variant.status


def _row(variant: Variant) -> tuple[str, ...]:
    timing = variant.evidence.get("timing")
    return (
        variant.profile,
        variant.precision,
        size(variant.evidence["size_bytes"]),
        lowest_snr(variant),
        milliseconds(timing["p50_ms"]) if timing else "-",
        verified_on(variant),
    )


def _notes(variant: Variant) -> Iterable[str]:
    """What the compiler or the engine has to say of a variant, with its reasons."""
    left = variant.evidence.get("runner", {}).get("outside_delegate")
    if left:
        ops = ", ".join(f"{count} {op}" for op, count in left.items())
        yield f"outside the fast path: {ops}"
    transposes = variant.evidence.get("compile", {}).get("transposes")
    if transposes:
        moved = size(sum(t["size_bytes"] for t in transposes))
        first = transposes[0]["why"]
        others = f" (and {len(transposes) - 1} more)" if len(transposes) > 1 else ""
        yield f"transposes left: {len(transposes)}, {moved}: {first}{others}"
    for name, error in variant.evidence.get("accuracy", {}).items():
        if variant.precision == "fp32" and error["snr_db"] is not None and error["snr_db"] < 100:
            why = "it saturates" if error["limit_db"] == 60 else "the model amplifies rounding here"
            yield f"output {name}: SNR {error['snr_db']} dB; {why}, so its limit is {error['limit_db']:g} dB"


def _basis(manifest: dict[str, Json], kept: Sequence[Variant]) -> str:
    """What the figures stand on: the samples, and the processor."""
    timings = [v.evidence["timing"] for v in kept if v.evidence.get("timing")]
    machines = dict.fromkeys(
        f"{t['cpu']}, {t['threads']} thread{'s' if t['threads'] > 1 else ''}" for t in timings
    )
    basis = f"compared with the source model on {manifest['samples']['origin']}"
    return f"{basis}; timed on {'; '.join(machines)}" if machines else basis

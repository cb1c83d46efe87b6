"""Bundle of a deferral: the large model's, with one variant that has the files of both models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Status, Variant, status_text
from edgekit.compiler.evaluate.deferral_threshold import Threshold
from edgekit.compiler.evaluate.verify import compare
from edgekit.processing.card import Card
from edgekit.system import cpu
from edgekit.system.cpu import default_threads
from edgekit.target.contract import Runner
from edgekit.target.deferral import LARGE, NAME, SMALL, top_and_margin
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Array, Content, Json

PRECISION = "deferral"
"""In its place: each of the two has its own."""
MARGIN_DB = 3.0
"""How far another machine's outputs may be below the SNR that was measured here: rounding moves the margin
of a golden vector over the threshold, and then the other model answers it."""


class DeferralPart(NamedTuple):
    """One of the two models: its variant and bundle, its outputs for the large one's golden vectors, and its
    median time."""

    name: str
    bundle: Bundle
    variant: Variant
    golden: Sequence[Mapping[str, Array]]
    time_ms: float


def deferral_bundle(
    small: DeferralPart,
    large: DeferralPart,
    card: Card,
    threshold: Threshold,
    expected_ms: float,
    figures: Mapping[str, Json],
    runners: Sequence[Runner],
) -> Bundle:
    """Return the large model's bundle with a variant of both, e.g. ``ort-deferral``; Sessions try it first.

    If the small one is from another bundle, it is added as a variant of its own, ``small-...``, which runs
    alone if no other variant runs.
    """
    assert card.task is not None
    manifest = {k: v for k, v in large.bundle.manifest.items() if k not in ("format", "version", "entries")}
    names = [entry["name"] for entry in large.bundle.manifest["entries"]]
    entries: dict[str, Content] = {name: large.bundle.read(name) for name in names}
    variants = list(manifest["variants"])
    apart = small.bundle.digest != large.bundle.digest
    if apart:
        small = _brought(small, large, entries, threshold.samples)
        variants.append(small.variant.as_json())
        small_profile = small.bundle.manifest["profiles"].get(small.variant.profile)
        if small_profile is not None:
            manifest["profiles"] = {small.variant.profile: small_profile, **manifest["profiles"]}
    files = {f"{part.name}/{f}": e for part in (small, large) for f, e in part.variant.files.items()}
    precision = _both(runner.precision for runner in runners)
    device = _both(runner.device for runner in runners)
    evidence: dict[str, Json] = {
        "size_bytes": sum(len(entries[entry]) for entry in set(files.values())),
        "engine": NAME,
        "executed": {"device": device, "precision": precision},
        "accuracy": _accuracy(small, large, _answers(small, large, card, threshold.threshold)),
        "timing": _timing(expected_ms, threshold.samples),
        "deferral": {
            **figures,
            "small_bundle": small.bundle.digest,
            "large_bundle": large.bundle.digest,
        },
    }
    options = {
        SMALL: _options(small.variant),
        LARGE: _options(large.variant),
        "scores": card.task.outputs["scores"],
        "decode": card.task.decode,
        "scale": float(card.task.options.scale),
        "threshold": threshold.threshold,
    }
    engines = _both(part.variant.reason.removeprefix("on ") for part in (small, large))
    status, profile = status_text(Status.VERIFIED, f"on {engines}"), large.variant.profile
    name = f"{profile}-{PRECISION}"
    variant = Variant(name, "deferral", profile, PRECISION, files, options, status, evidence)
    manifest["variants"] = [variant.as_json(), *variants]
    return Bundle.create(manifest, entries)


def _both(texts: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def in_bundle_of_large(name: str, small: Bundle, large: Bundle) -> str:
    """Return the name of the small variant in the bundle of the large one."""
    return name if small.digest == large.digest else f"small-{name}"


def _options(variant: Variant) -> dict[str, Json]:
    return {"variant": variant.name, "target": variant.target, "options": dict(variant.options)}


def _brought(
    small: DeferralPart, large: DeferralPart, entries: dict[str, Content], runs: int
) -> DeferralPart:
    """Add the small variant's files to the large bundle's entries, and its evidence against the golden
    vectors."""
    files = {}
    for file, entry in small.variant.files.items():
        files[file] = f"deferral/{entry}"
        entries[files[file]] = bytes(small.bundle.read(entry))
    copied_keys = ("size_bytes", "engine", "executed", "runner", "compile")
    evidence: dict[str, Json] = {k: v for k, v in small.variant.evidence.items() if k in copied_keys}
    evidence["accuracy"] = _accuracy(small, large, small.golden)
    evidence["timing"] = _timing(small.time_ms, runs)
    evidence["smaller_model"] = small.bundle.digest
    name = in_bundle_of_large(small.variant.name, small.bundle, large.bundle)
    return small._replace(variant=small.variant._replace(name=name, files=files, evidence=evidence))


def _answers(
    small: DeferralPart, large: DeferralPart, card: Card, threshold: float
) -> list[Mapping[str, Array]]:
    assert card.task is not None
    task, outputs = card.task, []
    for small_outputs, other in zip(small.golden, large.golden, strict=True):
        _, margin = top_and_margin(small_outputs[task.outputs["scores"]], task.decode, task.options.scale)
        outputs.append(small_outputs if margin > threshold else other)
    return outputs


def _accuracy(
    small: DeferralPart, large: DeferralPart, answers: Sequence[Mapping[str, Array]]
) -> dict[str, Any]:
    """Compare each output with the large bundle's golden vectors. The limit is the small one's SNR, less
    ``MARGIN_DB``, if its precision's own is higher: the small model is a different one."""
    errors = {}
    default_db = precision_of(small.variant.precision).snr_limit_db
    for spec in large.bundle.outputs:
        expected = [outputs[spec.name] for _, outputs in large.bundle.golden]
        alone_db = compare(expected, [outputs[spec.name] for outputs in small.golden], 0.0).snr_db
        limit_db = default_db if alone_db is None else min(default_db, round(alone_db - MARGIN_DB, 1))
        errors[spec.name] = compare(expected, [answer[spec.name] for answer in answers], limit_db).as_json()
    return errors


def _timing(time_ms: float, runs: int) -> dict[str, Json]:
    return {
        "p50_ms": float(f"{time_ms:.4g}"),
        "runs": runs,
        "threads": default_threads(),
        "cpu": cpu.cpu_name(),
        "isa": " ".join(cpu.instruction_sets()) or "unknown",
        "machine": cpu.processor_kind(),
        "measured": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }

"""Steps that the builds of language models and of encoder-decoders share: both generate tokens."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

from edgekit.bundle.variant import Status
from edgekit.compiler.evaluate.timing import RECALLED, timing_summary
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.try_variant import Compiled, try_variant
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.generate.host.graphs.language.graph_writer import OPSET
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.system.progress import Progress, stage
from edgekit.target.build_target import BuildTarget
from edgekit.tensor_spec import Json


def source_entry(
    path: Path, sha256: str, variants: Sequence[VariantBuild], about: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the manifest's ``source``: file, hash of the content, nodes of the largest graph, and further
    facts."""
    nodes = max((variant.artifact.facts.get("nodes", 0) for variant in variants), default=0)
    return {"file": path.name, "sha256": sha256, "opset": OPSET, "nodes": nodes, **about}


class LoadedModel(Protocol):
    """A loaded model that generates tokens."""

    device: str
    precision: str

    def facts(self) -> Mapping[str, Json]:
        """Return facts for the evidence."""

    def close(self) -> None:
        """Free it."""


NO_DESCRIPTIONS: Mapping[str, str] = {}
Loaded = TypeVar("Loaded", bound=LoadedModel)


def build_in_turn(
    compile_variant: Callable[[VariantBuild], Compiled],
    target: BuildTarget,
    precisions: Sequence[str],
    fallbacks: Sequence[str],
    forced: bool,
    faults: Faults,
    progress: Progress,
    described: Mapping[str, str] = NO_DESCRIPTIONS,
) -> list[VariantBuild]:
    """Build precisions for a target; then further ones, until a variant is good enough.

    Args:
        fallbacks: Further precisions, the first one first.
        forced: Whether to ship variants that are not good enough.
        described: Name of a kept variant -> what the progress shows beside its status.
    """
    variants, further, shown = list[VariantBuild](), list(fallbacks), faults.passing(progress)
    waiting = [*precisions]
    while waiting:
        variant = VariantBuild(target, waiting.pop(0), forced=forced)
        with stage(shown, "compiled") as notify:
            variants.append(try_variant(variant, faults, compile_variant))
            more = "" if variant.rejected else described.get(variant.name, "")
            notify(f"{variant.name}  {variant.status}{more}")
        is_lost = target.profile.name in faults.by_profile
        if not waiting and not is_lost and all(variant.rejected for variant in variants):
            waiting, further = further[:1], further[1:]
    return variants


def run_variant(
    variant: VariantBuild,
    purpose: str,
    open_runner: Callable[[Mapping[str, Path], int], Loaded],
    run: Callable[[Loaded], tuple[Sequence[float], Mapping[str, float]]],
) -> None:
    """Load a variant, run it, and add the evidence: engine, device, times. Its files are dropped if ``run``
    rejects it.

    Args:
        purpose: Quantity that is timed: a rebuild with identical bytes recalls it.
        open_runner: Loads its files, with a number of threads.
        run: Adds the evidence of its accuracy, and rejects it if it misses its limits. Returns the seconds of
            each run, none if it was not timed, and further figures of the timing by name.
    """
    gc.collect()  # a graph's nodes and values hold each other, and all constants with them: 540 MB in float32
    if (missing := variant.target.missing()) is not None:
        variant.reason = str(missing)
        return
    artifact, engine, threads = variant.artifact, variant.target.engine.engine_version(), default_threads()
    variant.evidence["engine"] = engine
    variant.outcome, variant.reason = Status.VERIFIED, f"on {engine}"
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        files = write_files(artifact, Path(folder))
        started = time.perf_counter()
        runner = open_runner(files, threads)
        load_ms = 1000 * (time.perf_counter() - started)
        with closing(runner):
            variant.evidence["executed"] = {"device": runner.device, "precision": runner.precision}
            seconds, figures = run(runner)
            variant.evidence["runner"] = dict(runner.facts())
    digest = stored_timings.run_digest(variant.digest, artifact.options)
    key = stored_timings.timing_key(digest, engine, threads, purpose)
    timing = stored_timings.recall(key, {**RECALLED, **dict.fromkeys(figures, float)})
    if timing is None and seconds:
        timing = {**timing_summary(seconds, load_ms, threads), **figures}
    if timing is not None:
        stored_timings.record(key, timing)
        variant.evidence["timing"] = timing  # type: ignore[typeddict-item]
    if variant.rejected:  # nobody reads them any more
        variant.artifact = artifact._replace(files={})

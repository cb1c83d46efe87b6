"""Variants of an encoder-decoder: both parts compiled, run by what the model is for, judged, timed."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from edgekit.bundle.variant import Status
from edgekit.compiler.build.encoder_decoder.stored_embedding import stored_embedding
from edgekit.compiler.build.faults import Fault, Faults
from edgekit.compiler.build.model_shapes import further_entry, stored_names, with_further
from edgekit.compiler.build.variant_build import VariantBuild, artifact_variant, lost_variant
from edgekit.compiler.evaluate.timing import RECALLED, timing_summary
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.lowering.encoder_decoder.encoder_writer import EncoderWriter
from edgekit.compiler.lowering.encoder_decoder.token_writer import TokenWriter
from edgekit.compiler.lowering.language import BlockWeights
from edgekit.compiler.lowering.language.graph_ir import as_ir
from edgekit.compiler.model.encoder_decoder.config import EMBEDDING, EncoderDecoderConfig, EncoderDecoderModel
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.encoder_decoder.folded_norms import with_folded_norms
from edgekit.compiler.quantize.language.block_rounding import nearest8
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.target import registry
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact
from edgekit.target.encoder_decoder import DECODER, ENCODER, OPTION, PADDING, EncoderDecoderShape
from edgekit.target.precisions import TABLE, LanguageBar, SpeechBar, precision_of
from edgekit.target.shapes import FOLDER, TokenAxes
from edgekit.tensor_spec import Array, Content, Json, Signature, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

FORMS: Mapping[str, SpeechBar] = {row.name: row.speech for row in TABLE if row.speech is not None}
"""Precision -> how encoder-decoders are built in it."""


@dataclass(eq=False)
class EncoderDecoderJob(ABC):
    """Build job of an encoder-decoder.

    Attributes:
        model: The model.
        bars: Limits by precision.
        force: Whether to ship variants that miss their bar, marked as such.
        faults: Faults of this build so far.
        folded: The same model with its norms in the matrices that follow, for int8.
        weights: Its matrices as integers, once they were needed; shared by the targets.
    """

    kind: ClassVar[str]
    """Name of such models in messages."""
    model: EncoderDecoderModel
    bars: Mapping[str, LanguageBar]
    force: bool
    faults: Faults
    folded: EncoderDecoderModel = field(init=False)
    weights: dict[str, BlockWeights] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.folded = with_folded_norms(self.model)

    @abstractmethod
    def ends(self) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return the inputs and outputs of a variant."""

    @abstractmethod
    def judge(self, runner: Runner, variant: VariantBuild) -> tuple[list[float], str]:
        """Run a variant, and add the evidence of its accuracy.

        Returns:
            The seconds of each generated text, and why the variant misses its bar; "": it does not.
        """

    def options(self) -> dict[str, Json]:
        """Return further options of an artifact."""
        return {}

    def at_shapes(self, model: EncoderDecoderModel) -> list[EncoderDecoderModel]:
        """Return the model at the shapes that it is compiled at, ascending."""
        return [model]

    def further(self) -> list[Signature]:
        """Return inputs and outputs at each of these shapes but the largest."""
        return []

    def axes(self) -> TokenAxes | None:
        """Return the axes that are as long as a padded source; needed if there are several shapes."""
        return None


def form_of(target: BuildTarget, precision: str) -> str | None:
    """Return how a target compiles a precision, or None if it has none of its forms."""
    available = target.info.precisions
    return next((form for form in FORMS[precision].forms if form in available), None)


def shape_of(config: EncoderDecoderConfig) -> EncoderDecoderShape:
    """Return the sizes between encoder and decoder."""
    return EncoderDecoderShape(
        config.heads, config.head_size, config.positions, config.context, config.vocabulary,
        config.decoder_layers, config.width if config.reads_text else 0, config.window,
    )  # fmt: skip


def padded(prompt: Sequence[int], size: int) -> Array:
    """Return a prompt as the input of a variant, int64 [1, size]."""
    return np.array([[*prompt, *[PADDING] * (size - len(prompt))]], np.int64)


def build_variant(job: EncoderDecoderJob, target: BuildTarget, precision: str) -> VariantBuild:
    """Build one variant; it is lost if its target meets a fault."""
    name = f"{target.profile.name}-{precision}"
    outcome = job.faults.contain(target.profile.name, name, partial(_variant, job, target, precision, name))
    return lost_variant(name, target, precision, None, outcome) if isinstance(outcome, Fault) else outcome


def compile_parts(job: EncoderDecoderJob, target: BuildTarget, precision: str) -> Artifact:
    """Compile both parts with the target's own compiler.

    Raises:
        UnsupportedError: the target cannot express some nodes.
        MissingDependency: a tool that compiles for this target is not installed.
    """
    *smaller, model = job.at_shapes(job.model if precision_of(precision).is_float else job.folded)
    weights = _weights(job, precision)
    files, options, nodes = dict[str, Content](), dict[str, Json](), 0
    further = [(dict[str, str](), dict[str, Json]()) for _ in smaller]
    for part in (ENCODER, DECODER):
        whole, others, count = _compiled(part, [*smaller, model], target, precision, weights)
        files |= {f"{part}/{name}": content for name, content in whole.files.items()}
        options[part] = dict(whole.options)
        nodes += count
        for number, (other, (names, table)) in enumerate(zip(others, further, strict=True)):
            folder = f"{FOLDER}{number}/{part}/"
            stored = stored_names(other, whole, folder, target.info.share_weights is not None)
            for name, place in stored.items():
                names[f"{part}/{name}"] = place if place.startswith(folder) else f"{part}/{place}"
                files[names[f"{part}/{name}"]] = other.files[name]
            table[part] = dict(other.options)
    if model.config.reads_text:
        table, content = stored_embedding(model.weight(EMBEDDING), weights.get(EMBEDDING), files)
        options["embedding"] = table
        files |= content

    def described(shape: EncoderDecoderModel, parts: Mapping[str, Json]) -> dict[str, Json]:
        sizes = {**shape_of(shape.config)._asdict(), "rules": model.rules.as_json()}
        return {"precision": precision, OPTION: {**sizes, **parts, **job.options()}}

    artifact = Artifact(files, described(model, options), {"nodes": nodes})
    entries = [
        further_entry(signature, names, described(other, table))
        for signature, other, (names, table) in zip(job.further(), smaller, further, strict=True)
    ]
    return with_further(artifact, entries, job.axes()) if entries else artifact


def _compiled(
    part: str, models: Sequence[EncoderDecoderModel], target: BuildTarget, precision: str,
    weights: Mapping[str, BlockWeights],
) -> tuple[Artifact, list[Artifact], int]:  # fmt: skip
    """Compile a part at each shape, ascending.

    Returns:
        The artifact of the largest shape, those of the others, and the nodes of the largest one.
    """
    form = form_of(target, precision)
    assert form is not None
    by_row, artifacts, nodes = precision_of(form).rounds_inputs and target.info.shared_range, [], 0
    for model in models:
        writer: EncoderWriter | TokenWriter
        if part == ENCODER:
            writer = EncoderWriter(model, weights, by_row=by_row)
        else:
            writer = TokenWriter(model, weights, rows=target.info.stores_rows)
        graph = as_ir(writer.write())
        run_passes(graph)
        artifacts.append(target.compiler.compile_model(graph, target.profile, form))
        nodes = len(graph.graph)
    *further, whole = artifacts
    if further and target.info.share_weights is not None:
        whole, further = target.info.share_weights(whole, further)
    return whole, further, nodes


def _variant(job: EncoderDecoderJob, target: BuildTarget, precision: str, name: str) -> VariantBuild:
    artifact = compile_parts(job, target, precision)
    return artifact_variant(name, target, precision, artifact, job.force, partial(_run, job))


def _weights(job: EncoderDecoderJob, precision: str) -> Mapping[str, BlockWeights]:
    """Return the integers of the matrices, computed once."""
    if precision_of(precision).is_float:
        return {}
    if not job.weights:
        job.weights = {name: nearest8(job.folded.weight(name), 0) for name in job.model.config.matrices()}
    return job.weights


def _run(job: EncoderDecoderJob, variant: VariantBuild) -> None:
    """Run a variant, and reject it if it misses its bar."""
    artifact, target, threads = variant.artifact, variant.target, default_threads()
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        files = write_files(artifact, Path(folder))
        started = time.perf_counter()
        runner = registry.open_runner(target.engine, files, *job.ends(), artifact.options, threads)
        load_ms = 1000 * (time.perf_counter() - started)
        with closing(runner):
            seconds, reason = job.judge(runner, variant)
            variant.evidence["runner"] = dict(runner.facts())
            variant.evidence["executed"] = {"device": runner.device, "precision": variant.precision}
    engine = target.engine.engine_version()
    variant.evidence["engine"] = engine
    digest = stored_timings.run_digest(variant.digest, artifact.options)
    key = stored_timings.timing_key(digest, engine, threads, job.kind)
    timing = stored_timings.recall(key, RECALLED) or timing_summary(seconds, load_ms, threads)
    stored_timings.record(key, timing)
    variant.evidence["timing"] = timing  # type: ignore[typeddict-item]
    variant.outcome, variant.reason = Status.VERIFIED, f"on {engine}"
    if reason:
        variant.reject(reason)
    if variant.rejected:  # nobody reads them any more
        variant.artifact = artifact._replace(files={})

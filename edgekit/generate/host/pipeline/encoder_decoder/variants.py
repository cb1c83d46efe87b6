"""Variants of an encoder-decoder: both parts compiled, run on the sources, judged, timed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.model_shapes import further_entry, stored_names, with_further
from edgekit.compiler.pipeline.try_variant import Compiled
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.generate.device.encoder_decoder import DECODER, ENCODER, MASK, OPTION, SAMPLES
from edgekit.generate.host.graphs.encoder_decoder.encoder_writer import EncoderWriter
from edgekit.generate.host.graphs.encoder_decoder.part_writer import signed_integers
from edgekit.generate.host.graphs.encoder_decoder.token_writer import TokenWriter
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.graphs.language.graph_writer import as_ir
from edgekit.generate.host.pipeline.encoder_decoder.job import FORMS, EncoderDecoderJob, ends_of, shape_of
from edgekit.generate.host.pipeline.generation import run_variant
from edgekit.generate.host.readers.encoder_decoder.config import EMBEDDING, EncoderDecoderModel
from edgekit.generate.host.weights.language.block_rounding import nearest8
from edgekit.target import registry
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact, Runner
from edgekit.target.precisions import precision_of
from edgekit.target.shapes import FOLDER, TokenAxes
from edgekit.tensor_spec import Array, Content, Json

WINDOW_AXES = TokenAxes(MASK, False, {SAMPLES: (1,), MASK: (1,)})
"""Axes of a sound's samples, of which the session runs the shortest window that holds them. Other models have
one shape."""
ROWS, SCALES = "embedding/rows", "embedding/scales"
SEARCHED_BYTES = 512
"""Bytes of the matrix that are searched; the others are compared where they are found."""


def form_of(target: BuildTarget, precision: str) -> str | None:
    """Return how a target compiles a precision, or None if it has none of its forms."""
    available = target.info.precisions
    return next((form for form in FORMS[precision].forms if form in available), None)


def compile_variant(job: EncoderDecoderJob, variant: VariantBuild) -> Compiled:
    """Compile one variant. It is run on the sources, and rejected if it misses its limits.

    Raises:
        UnsupportedError: the target cannot express some nodes.
        MissingDependency: a tool that compiles for this target is not installed.
        EngineError: the engine failed.
    """
    target = variant.target
    artifact = compile_parts(job, target, variant.precision)

    def open_runner(files: Mapping[str, Path], threads: int) -> Runner:
        ends = ends_of(job.model.config)
        return registry.open_runner(target.engine, files, *ends, artifact.options, threads)

    def judge(variant: VariantBuild) -> None:
        run_variant(variant, job.kind.models, open_runner, partial(job.judge, variant=variant))

    return Compiled(artifact, judge)


def compile_parts(job: EncoderDecoderJob, target: BuildTarget, precision: str) -> Artifact:
    """Compile both parts with the target's own compiler.

    Raises:
        UnsupportedError: the target cannot express some nodes.
        MissingDependency: a tool that compiles for this target is not installed.
    """
    *smaller, model = (job.model if precision_of(precision).is_float else job.folded).at_shapes()
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
        options |= {"embedding": table, "pad": job.model.pad}
        files |= content

    def described(shape: EncoderDecoderModel, parts: Mapping[str, Json]) -> dict[str, Json]:
        sizes = {**shape_of(shape.config)._asdict(), "rules": model.rules.as_json()}
        return {"precision": precision, OPTION: {**sizes, **parts}}

    artifact = Artifact(files, described(model, options), {"nodes": nodes})
    entries = [
        further_entry(ends_of(other.config), names, described(other, table))
        for other, (names, table) in zip(smaller, further, strict=True)
    ]
    return with_further(artifact, entries, WINDOW_AXES) if entries else artifact


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


def _weights(job: EncoderDecoderJob, precision: str) -> Mapping[str, BlockWeights]:
    if precision_of(precision).is_float:
        return {}
    if not job.weights:
        job.weights = {name: nearest8(job.folded.weight(name), 0) for name in job.model.config.matrices()}
    return job.weights


def stored_embedding(
    matrix: Array, packed: BlockWeights | None, files: Mapping[str, Content]
) -> tuple[dict[str, Json], dict[str, bytes]]:
    """Return the table of ``EmbeddingTable``, and files that belong to it.

    Args:
        matrix: The embedding, float32 [vocabulary, width].
        packed: The embedding as integers, one scale for each token; None: it is stored as floats.
        files: Compiled files of both parts by name. Without the matrix in one, it is stored in a file of its
            own.
    """
    further = dict[str, bytes]()
    if packed is None:
        forms = [matrix, matrix.astype(np.float16)]
    else:
        forms = [signed_integers(packed)]
        further[SCALES] = packed.scales[:, 0].astype("<f4").tobytes()
    for array in forms:
        for columns in (False, True):
            content = np.ascontiguousarray(array.T if columns else array).tobytes()
            for name, whole in files.items():
                if name.startswith(f"{DECODER}/") and (offset := _offset(content, whole)) >= 0:
                    return _table(name, offset, array, columns), further
    return _table(ROWS, 0, forms[0], False), {**further, ROWS: np.ascontiguousarray(forms[0]).tobytes()}


def _table(name: str, offset: int, array: Array, columns: bool) -> dict[str, Json]:
    place: dict[str, Json] = {"file": name, "offset": offset, "dtype": str(array.dtype), "columns": columns}
    return {**place, "zero": 0, "scales": SCALES}


def _offset(content: bytes, whole: Content) -> int:
    """Return where ``whole`` has the content, or -1."""
    view = memoryview(whole)
    start = re.compile(re.escape(content[:SEARCHED_BYTES]))
    match = start.search(view)
    while match is not None:
        if view[match.start() : match.start() + len(content)] == content:
            return match.start()
        match = start.search(view, match.start() + 1)
    return -1

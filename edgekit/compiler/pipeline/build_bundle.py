"""The build: one model in, one verified bundle out; one line per stage (compiler/pipeline/stages.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.proof import USED_SAMPLES
from edgekit.compiler.importers.conversion import as_source
from edgekit.compiler.model.model_kinds import ModelKind, kind_of
from edgekit.compiler.model.shape_sets import further_shapes, largest_shapes
from edgekit.compiler.pipeline.build_options import build_options
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.bundle_contents import make_bundle
from edgekit.compiler.pipeline.card_trial import try_card
from edgekit.compiler.pipeline.forecast import forecast
from edgekit.compiler.pipeline.memory_need import Claim, memory_need, model_bytes, seconds_need, unclaimed
from edgekit.compiler.pipeline.shape_figures import evaluate_shapes
from edgekit.compiler.pipeline.shapes import shape_references, with_shapes
from edgekit.compiler.pipeline.stages import (
    VERIFIED_SAMPLES,
    add_quantized_variants,
    build_float_variants,
    check_targets,
    estimate_variants,
    open_source,
    prepare_samples,
    time_and_select,
)
from edgekit.errors import UsageError
from edgekit.processing.card import Card, load_card
from edgekit.system.progress import Progress, Stage, listener, stage
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.installed_profiles import find_profile

if TYPE_CHECKING:
    from edgekit.compiler.card_inference.draft import Draft

__all__ = ["Progress", "Stage", "build_bundle"]


def build_bundle(request: BuildRequest, claim: Claim = unclaimed) -> Bundle:
    """Build in this process; ``edgekit.build`` documents the arguments and errors.

    ``claim`` is called with the memory and time that the model's values need, before they are computed.
    """
    targets, source = _targets(request.targets), as_source(request.model)
    kind = kind_of(source) if isinstance(source, Path) else None
    _check_options(request, kind)
    if kind is not None:
        return cast("Bundle", kind.build(source, targets, request, claim))
    options = build_options(request)
    progress = forecast(listener(request.progress), options, targets, request)
    request = replace(request, progress=progress)
    card = _card(request.card) or _card_of_folder(request)
    job = open_source(source, card, targets, options, request)
    shapes = None
    if request.lengths or further_shapes(request.shapes or {}):
        job, shapes = with_shapes(job, source, request)
    used = USED_SAMPLES if job.holds_out else VERIFIED_SAMPLES
    sizes, builds = model_bytes(job.canonical), len(targets) * (1 + len(shapes.further if shapes else ()))
    claim(
        memory_need(model_bytes(job.source), sizes, used, len(targets)),
        seconds_need(job.canonical, sizes, used, builds),
    )
    check_targets(job, progress)
    data = prepare_samples(job, request.samples, progress)
    tried = try_card(job, data.all, progress)
    data = replace(data, uses_labels="unused" not in tried.get("labels", {}))
    by_shape = shape_references(job, shapes, data.reference) if shapes else []
    variants = build_float_variants(job, data.reference, progress)
    variants = add_quantized_variants(job, data, variants, progress)
    estimate_variants(job, variants, progress)
    variants = time_and_select(job, data.reference, variants, progress)
    if by_shape:
        evaluate_shapes(job, by_shape, variants, progress)
    of_range = shapes.of_range if shapes else None
    return make_bundle(job, data.all, data.reference, variants, data.import_check, by_shape, of_range, tried)


def _check_options(request: BuildRequest, kind: ModelKind | None) -> None:
    if kind is None and (names := request.inapplicable(None)):
        raise UsageError(f"{names[0]} applies to language models only; leave it out")
    if kind is not None and (names := request.inapplicable(kind.options)):
        raise UsageError(f"{', '.join(names)}: does not apply to {kind.name}; leave it out")


def _targets(targets: Sequence[str]) -> list[BuildTarget]:
    if isinstance(targets, str) or not targets:
        raise UsageError("targets is a list of one or more targets or profiles, e.g. ['ort', 'rpi5']")
    repeated = sorted({t for t in targets if list(targets).count(t) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)} is given more than once")
    return [resolve(find_profile(name)) for name in targets]


def _card_of_folder(request: BuildRequest) -> Card | None:
    """Draft the card of a Hugging Face folder by its files; None for another model."""
    model = request.model
    if not isinstance(model, str | os.PathLike) or as_source(model) == Path(model):
        return None
    from edgekit.compiler.card_inference.draft import draft_card

    with stage(listener(request.progress), "card") as notify:
        shapes = largest_shapes(request.shapes or {})
        draft = draft_card(model, shapes, request.example_inputs, request.trust_pickle)
        task = draft.card.task
        guessed = f"; guessed: {', '.join(draft.guessed)}" if draft.guessed else ""
        notify(f"{task.kind if task else 'arrays'}, by the files of {Path(model).name}{guessed}")
    return draft.card


def _card(card: Card | Draft | str | Path | None) -> Card | None:
    if card is None or isinstance(card, Card):
        return card
    if not isinstance(card, str | os.PathLike):
        raise UsageError(
            f"card is a {type(card).__name__}; give the path of a TOML file, or a Card: "
            "edgekit.processing.card.parse_card makes one of a table"
        )
    return load_card(card)

"""``edgekit.check``, ``build``, ``shrink``, ``import_model`` and ``draft_card``: a file is opened in a child
process, unless it is trusted. The files of an ``hf://`` address are fetched here before, since a child has no
network.

An object of a framework is the caller's own and lives in this process: it is built here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.compiler.hub.address import HubAddress, is_hub_address
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.shrink_request import ShrinkRequest
from edgekit.compiler.quantize.search.measurement_cache import share_shipped
from edgekit.compiler.sandbox.contained import (
    build_contained,
    card_contained,
    check_contained,
    import_contained,
    shrink_contained,
)
from edgekit.compiler.sandbox.limits import model_files
from edgekit.diagnostics import Finding
from edgekit.system.declared_options import called_with
from edgekit.system.python_calls import public, spoken
from edgekit.system.records_folder import model_folder, records_in

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.compiler.card_inference.draft import Draft
    from edgekit.compiler.importers.contract import Source
    from edgekit.compiler.pipeline.import_onnx import ImportedModel
    from edgekit.compiler.pipeline.shrunk_model import ShrunkModel

TRUSTED = "EDGEKIT_TRUSTED"
"""Environment variable: 1 for ``trusted=True`` everywhere."""


@public
def check(
    model: str | Path | Source,
    targets: Sequence[str] | str | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    trust_pickle: bool = False,
    trusted: bool = False,
    progress: bool = True,
) -> list[Finding]:
    """List what each target can't run, or would run off its fast path.

    A model with dynamic dimensions that nothing fixes is checked with suggested shapes. Findings for all
    targets (``target`` is "") then have the shapes to give; those that other shapes avoid name them.

    Args:
        model: Path of an ``.onnx`` file, or of another framework's that an importer takes
            (docs/importing.md); or an address ``hf://OWNER/NAME``.
        targets: Targets or device profiles, or one of them; None for all installed targets. A target whose
            compiler needs a package that is not installed is then a note.
        shapes: Static shapes by input name, as in ``build``.
        example_inputs: Same as in ``build``.
        trust_pickle: Same as in ``build``.
        trusted: Same as in ``build``.
        progress: Whether a terminal or a notebook shows a line while it runs.

    Returns:
        Findings, errors (which prevent a build) first, then by what to do.

    Raises:
        ModelError: the file is not a model. CrashError: its process died, or took too much memory or time.
        ProfileError: an unknown target.
        MissingDependency: a target that was asked for by name can't compile here.
    """
    names = [targets] if isinstance(targets, str) else targets
    options = {**_opening(model, shapes, example_inputs, trust_pickle), "targets": names}
    if is_contained(options["model"], trusted):
        findings = check_contained(options)
    else:
        from edgekit.compiler.pipeline.check import check as check_here

        with _recorded(options):
            findings = check_here(**options)
    return [replace(f, message=spoken(f.message), fix=spoken(f.fix)) for f in findings]


@public
@called_with(BuildRequest)
def build(request: BuildRequest) -> Bundle:
    """Build a model for targets and devices, and verify each variant by running it here.

    Returns:
        The bundle, in memory. Rejected variants and those that could not be run are listed with the reason.

    Raises:
        UsageError: wrong precision, no or repeated targets, a layout that is not available.
        ProfileError: unknown target.
        CardError: the card is malformed or does not describe the model.
        SampleError: no samples are found, or one does not fit the inputs.
        ModelError: the file is not a model, or has dynamic dimensions that nothing freezes. CrashError: its
            process died, or took too much memory or time.
        UnsupportedError: a target cannot express some nodes; every reason for every target is named.
        MissingDependency: a tool that compiles for a target is not installed.
    """
    if is_hub_address(request.model):
        from edgekit.compiler.hub.files import fetch, with_repository

        fetched = fetch(HubAddress(str(request.model)))
        return with_repository(build_request(replace(request, model=fetched.path)), fetched.address)
    return build_request(request)


def build_request(request: BuildRequest) -> Bundle:
    """Build a model of this machine, like :func:`build`."""
    if is_contained(request.model, request.trusted):
        bundle = build_contained(request)
    else:
        from edgekit.compiler.pipeline.build_bundle import build_bundle

        with _recorded(vars(request)):
            bundle = build_bundle(request)
    if isinstance(request.model, str | os.PathLike):
        share_shipped(model_folder(model_files(vars(request))))
    return bundle


@public
@called_with(ShrinkRequest)
def shrink(request: ShrinkRequest) -> ShrunkModel:
    """Remove the channels of a model that cost least, without training.

    Weights that read removed channels are fitted to what is left by least squares (docs/shrinking.md).

    Returns:
        The smaller model, with its losses and gains. ``faster``: whether it is faster on an engine.

    Raises:
        UsageError: no goal, or several; none of the model's channels can be removed, or not that many.
        SampleError: there are no samples, or one does not fit the inputs.
        ModelError: the file is not a model. CrashError: its process died, or took too much memory or time.
        MissingDependency: the engine of a target that is named is not installed.
    """
    from edgekit.compiler.compress.goal import shrink_goal

    goal = shrink_goal(request.flops, request.size, request.latency)
    if is_contained(request.model, request.trusted):
        return shrink_contained(request, goal)
    from edgekit.compiler.pipeline.shrink import shrink_model

    with _recorded(vars(request)):
        return shrink_model(request)


@public
def import_model(
    model: str | Path | Source,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    trust_pickle: bool = False,
    trusted: bool = False,
) -> ImportedModel:
    """Convert a model of another framework to ONNX, and compare it with the original.

    The comparison runs the original in its own framework, where that is installed, on the example inputs, or
    on random inputs where there are none.

    Args:
        model: Path of a file that an importer takes (docs/importing.md), or an object of a framework.
        shapes: Static shapes by input name.
        example_inputs: Arguments with which a PyTorch module or a JAX function is traced: arrays in
            the order of its parameters, or a mapping by their names, e.g. what a tokenizer returns.
        trust_pickle: Whether a file that is a Python pickle may be loaded, which runs code in it.
        trusted: Same as in ``build``.

    Returns:
        The ONNX model, in memory: ``save`` writes it.

    Raises:
        UsageError: the model is ONNX already, or an object of no framework.
        ModelError: it can't be converted, or the ONNX model's outputs differ from the original's. CrashError:
            its process died, or took too much memory or time.
        MissingDependency: the package that imports it is not installed.
    """
    options = _opening(model, shapes, example_inputs, trust_pickle)
    if is_contained(options["model"], trusted):
        return import_contained(options)
    from edgekit.compiler.pipeline.import_onnx import import_model as import_here

    with _recorded(options):
        return import_here(**options)


@public
def draft_card(
    model: str | Path | Source,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    trust_pickle: bool = False,
    trusted: bool = False,
) -> Draft:
    """Draft the card of a model. The same model gives the same text.

    Args:
        model: Path of an ``.onnx`` file or of another framework's, a framework's object, or an address
            ``hf://OWNER/NAME``.
        shapes: Static shapes by input name, for what the model leaves open.
        example_inputs: Same as in ``build``.
        trust_pickle: Same as in ``build``.
        trusted: Same as in ``build``.

    Returns:
        The card. Check the lines whose comment begins with ``guessed:``.

    Raises:
        ModelError: the file is not a model, or can't be opened with any usual size. CrashError: its process
            died, or took too much memory or time.
        MissingDependency: the package that imports it is not installed.
    """
    options = _opening(model, shapes, example_inputs, trust_pickle)
    if is_contained(options["model"], trusted):
        return card_contained(options)
    from edgekit.compiler.card_inference.draft import draft_card as draft_here

    with _recorded(options):
        return draft_here(**options)


def _opening(
    model: object, shapes: Mapping[str, tuple[int, ...]] | None, example_inputs: Any, trust_pickle: bool
) -> dict[str, Any]:
    """Return the options for opening a model, by the names that all verbs share."""
    if is_hub_address(model):
        from edgekit.compiler.hub.files import fetch

        model = fetch(HubAddress(str(model))).path
    return {
        "model": model,
        "shapes": shapes and dict(shapes),
        "example_inputs": example_inputs,
        "trust_pickle": trust_pickle,
    }


def is_contained(model: object, trusted: bool) -> bool:
    """Return whether a model is opened in a child: an untrusted file, where this Python can start another.
    A frozen app can't: it is its own executable."""
    if trusted or os.environ.get(TRUSTED) == "1" or not isinstance(model, str | os.PathLike):
        return False
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _recorded(options: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Record measurements of a trusted file where its child would, and of an object in the cache folder."""
    is_file = isinstance(options["model"], str | os.PathLike)
    return records_in(model_folder(model_files(options)) if is_file else None)

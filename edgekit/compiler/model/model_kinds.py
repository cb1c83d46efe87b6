"""Kinds of models that have a build of their own; a model of no kind is a graph.

Those that write tokens are in ``KINDS`` of the module MODULE, found by its name: this floor imports no kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from edgekit.target.model_packages import package_target

MODULE = "edgekit.generate.host.kinds"


@dataclass(frozen=True)
class ModelKind:
    """A kind of model.

    Attributes:
        name: Name of such models in messages, in the plural.
        options: Fields of ``BuildRequest`` that apply to such models, besides those of any model.
        reads_folder: Whether weights are read from a Hugging Face folder, by its ``config.json`` and whether
            it has safetensors. Never raises.
        matches: Whether a path is a model of this kind, by its content. Never raises.
        builder: ``module:function``, the function (path, targets, request, claim) -> Bundle.
        encoder_decoders: ``model_type`` of the encoder-decoders among them.
    """

    name: str
    options: tuple[str, ...]
    reads_folder: Callable[[Path, bool], bool]
    matches: Callable[[Path], bool]
    builder: str
    encoder_decoders: tuple[str, ...] = ()

    def build(self, *arguments: Any) -> Any:
        module, _, function = self.builder.partition(":")
        return getattr(import_module(module), function)(*arguments)  # here: it needs 10 MB


PACKAGES = ModelKind(
    name="model packages",
    options=("samples", "card", "shapes", "reference"),
    reads_folder=lambda folder, _: False,
    matches=lambda path: package_target(path) is not None,
    builder="edgekit.compiler.pipeline.package_bundle:build_package",
)
"""Packages of an engine, with variants that are compiled already."""


def model_kinds() -> Sequence[ModelKind]:
    return [*cast("Sequence[ModelKind]", import_module(MODULE).KINDS), PACKAGES]


def encoder_decoder_advice() -> str:
    """Return what to pass instead of an encoder-decoder that can't be built, for a sentence on it."""
    families = [family for kind in model_kinds() for family in kind.encoder_decoders]
    return (
        f"is an encoder-decoder; EdgeKit builds {', '.join(families)} from folders (save_pretrained); "
        "to build its encoder, pass that module from Python: edgekit.build(model.get_encoder(), "
        "example_inputs=..., targets=[...])"
    )


def kind_of(path: Path) -> ModelKind | None:
    """Return the kind of a model's file or folder. None means a graph."""
    return next((kind for kind in model_kinds() if kind.matches(path)), None)

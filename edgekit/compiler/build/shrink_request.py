"""Request for a smaller model: every option of ``edgekit model shrink``, declared once."""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.compiler.build.build_request import BuildRequest
from edgekit.system.declared_options import option, same

if TYPE_CHECKING:
    from edgekit.compiler.evaluate.samples import Sample
    from edgekit.compiler.importers.contract import Source
    from edgekit.processing.card import Card
    from edgekit.system.progress import Progress


@dataclass(frozen=True)
class ShrinkRequest:
    """Arguments of ``edgekit.shrink``."""

    model: "str | Path | Source" = field(metadata=option("As ``build`` takes it; float."))
    _: KW_ONLY
    flops: str | float | None = field(default=None, metadata=option(
        "How many multiplications fewer: ``-20%`` or 0.2.",
        help="Reduction of the number of multiplications.", metavar="-20%",
    ))  # fmt: skip
    size: str | float | None = field(default=None, metadata=option(
        "Reduction of the size of the weights.", help="Reduction of the size of the weights.", metavar="-30%",
    ))  # fmt: skip
    latency: str | None = field(default=None, metadata=option(
        "How much less latency, measured on a target's engine here: ``-25%@tflite``.",
        help="Reduction of the latency, measured here on TARGET's engine.", metavar="-25%@TARGET",
    ))  # fmt: skip
    samples: str | Path | Sequence["Sample"] = field(metadata=option(
        "As there: 64 to 128 inputs like those that the model will see. A third is held out for testing.",
        help="Folder or glob of .npz or .npy files or, with a card, images and videos.", metavar="PATH",
    ))  # fmt: skip
    card: "Card | str | Path | None" = field(default=None, metadata=option(
        "Describes the inputs and outputs: with a task, channels are judged by its predictions.",
        help="Card (card.toml) that describes the model's pre- and post-processing.", kind=Path,
    ))  # fmt: skip
    targets: Sequence[str] = field(default=(), metadata=same(
        BuildRequest, "targets",
        doc="Both models are timed on these; none: on all whose engine is installed.",
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int, ...]] | None = field(default=None, metadata=same(
        BuildRequest, "shapes", doc="Static shapes by input name.",
    ))  # fmt: skip
    trust_pickle: bool = field(default=False, metadata=same(BuildRequest, "trust_pickle"))
    trusted: bool = field(default=False, metadata=same(BuildRequest, "trusted", doc="As in ``build``."))
    progress: "Progress" = field(default=BuildRequest.progress, metadata=same(BuildRequest, "progress"))

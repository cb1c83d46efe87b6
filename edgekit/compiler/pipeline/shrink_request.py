"""Request for a smaller model: every option of ``edgekit model shrink``, declared once."""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.compiler.pipeline.build_request import CARD, SAMPLES, TARGETS, BuildRequest
from edgekit.system.declared_options import option, same

if TYPE_CHECKING:
    from edgekit.compiler.evaluate.samples import Sample
    from edgekit.compiler.importers.contract import Source
    from edgekit.processing.card import Card
    from edgekit.system.progress import Progress


@dataclass(frozen=True)
class ShrinkRequest:
    """Remove the channels of a model that cost least, without training.

    Args:
        model: Model as ``build`` takes it; float.
        flops: Reduction of the number of multiplications.
        size: Reduction of the size of the weights.
        latency: Reduction of the latency, measured here on TARGET's engine.
        samples: Folder or glob of .npz or .npy files or, with a card, images and videos. 64 to 128
            inputs like those that the model will see are enough.
        card: Card (card.toml) that describes the model's pre- and post-processing.
        targets: Target or device profile, e.g. ort, tflite or rpi5; edgekit targets lists them.
        shapes: Static shape of an input by its name, or of the only image input; several, or a
            range of one size (1x1..512), go into one bundle.
        trust_pickle: Load the model even if it is a Python pickle; loading runs the code in it.
        trusted: Open the model in this process instead of a confined child process.
        progress: Callback for progress, called as each stage begins, goes on and ends; False for
            none.
    """

    model: "str | Path | Source" = field(
        metadata=option(
            "Model as ``build`` takes it; float.",
            python_only=True,
        )
    )
    _: KW_ONLY
    flops: str | float | None = field(default=None, metadata=option(
        "Reduction of the number of multiplications. In Python it may be 0.2 for ``-20%``.", metavar="-20%",
    ))  # fmt: skip
    size: str | float | None = field(default=None, metadata=option(
        "Reduction of the size of the weights.", metavar="-30%",
    ))  # fmt: skip
    latency: str | None = field(default=None, metadata=option(
        "Reduction of the latency, measured here on TARGET's engine.", metavar="-25%@TARGET",
    ))  # fmt: skip
    samples: str | Path | Sequence["Sample"] = field(metadata=option(
        f"{SAMPLES} 64 to 128 inputs like those that the model will see are enough. A third is held out for "
        "testing.",
        metavar="PATH",
    ))  # fmt: skip
    card: "Card | str | Path | None" = field(default=None, metadata=option(
        f"{CARD} With a task, channels are judged by its predictions.", kind=Path,
    ))  # fmt: skip
    targets: Sequence[str] = field(default=(), metadata=same(
        BuildRequest, "targets", doc=f"{TARGETS} Both models are timed on them. Without any, all installed "
        "engines are used.",
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int, ...]] | None = field(default=None, metadata=same(BuildRequest, "shapes"))
    trust_pickle: bool = field(default=False, metadata=same(BuildRequest, "trust_pickle"))
    trusted: bool = field(default=False, metadata=same(BuildRequest, "trusted"))
    progress: "Progress | bool" = field(
        default=BuildRequest.progress, metadata=same(BuildRequest, "progress")
    )

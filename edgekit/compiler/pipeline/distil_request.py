"""Requests for a training: every option of ``edgekit model distil``, declared once."""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.compiler.pipeline.build_request import CARD, BuildRequest
from edgekit.system.declared_options import option, same

if TYPE_CHECKING:
    from edgekit.compiler.evaluate.samples import Sample
    from edgekit.compiler.importers.contract import Source
    from edgekit.processing.card import Card
    from edgekit.system.progress import Progress


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Arguments of every training."""

    epochs: float | None = field(default=None, metadata=option(
        "Number of passes over the samples.",
    ))  # fmt: skip
    minutes: float | None = field(default=None, metadata=option(
        "Time limit of the training. One of epochs and minutes is needed.",
    ))  # fmt: skip
    batch: int | None = field(default=None, metadata=option(
        "Batch size. It is at most as many samples as have 2 GB of values in the student; for a draft 4 "
        "texts.",
        default="64, or less for a large model",
        heading="Training",
    ))  # fmt: skip
    learning_rate: float | None = field(default=None, metadata=option(
        "Maximum learning rate. It rises at first and falls to 0. As often as the student gets worse than "
        "before training, training begins again with a third of it. For a draft it is 0.0005.",
        default="0.005, lowered if the student gets worse",
        heading="Training",
    ))  # fmt: skip
    seed: int = field(default=0, metadata=option(
        "Random seed. With ``epochs``, the same seed gives the same weights on the same machine.", minimum=0,
        heading="Training",
    ))  # fmt: skip
    threads: int | None = field(default=None, metadata=option(
        "Number of threads.", default="all cores, at most 4", minimum=1,
        heading="Training",
    ))  # fmt: skip
    checkpoint: str | Path | None = field(default=None, metadata=option(
        "File that the training is saved to at each of its 20 checks, and at Ctrl-C; ``distil`` deletes it "
        "at the end.",
        python_only=True,
    ))  # fmt: skip
    resume: bool = field(default=False, metadata=option(
        "Continue from OUTPUT.checkpoint, which an interrupted training leaves. In Python it is the file of "
        "``checkpoint``.",
        heading="Training",
    ))  # fmt: skip
    progress: "Progress | bool" = field(
        default=BuildRequest.progress, metadata=same(BuildRequest, "progress")
    )


@dataclass(frozen=True)
class DistilRequest(TrainingRequest):
    """Train a smaller model to give the outputs of a larger one.

    Args:
        teacher: Model as :func:`edgekit.build` takes it.
        epochs: Number of passes over the samples.
        minutes: Time limit of the training.
        batch: Batch size.
        learning_rate: Maximum learning rate.
        seed: Random seed.
        threads: Number of threads.
        checkpoint: File that the training is saved to at each of its 20 checks, and at Ctrl-C;
            ``distil`` deletes it at the end.
        resume: Continue from OUTPUT.checkpoint, which an interrupted training leaves.
        progress: Callback for progress, called as each stage begins, goes on and ends; False for
            none.
        student: Smaller model with the same inputs and outputs, e.g. from edgekit model shrink.
        samples: Folder or glob of .npz or .npy files or, with a card, images and videos; no labels
            are needed; with --train-draft: a text file.
        card: Card (card.toml) that describes the model's pre- and post-processing.
        augment: Image augmentation: none, or some of flip,crop,brightness.
        features: Also match intermediate features of both models.
        shapes: Static shape of an input by its name, or of the only image input; several, or a
            range of one size (1x1..512), go into one bundle.
        trust_pickle: Load the model even if it is a Python pickle; loading runs the code in it.
    """

    teacher: "str | Path | Source" = field(metadata=option(
        "Model as :func:`edgekit.build` takes it.", python_only=True,
    ))  # fmt: skip
    _: KW_ONLY
    student: "str | Path | Source" = field(metadata=option(
        "Smaller model with the same inputs and outputs, e.g. from edgekit model shrink. It may be a PyTorch "
        "module. It is in float32, and all of its operators are known to "
        "``edgekit.compiler.compress.torch``.",
        kind=Path,
    ))  # fmt: skip
    samples: str | Path | Sequence["Sample"] = field(metadata=option(
        "Folder or glob of .npz or .npy files or, with a card, images and videos; no labels are needed; with "
        "--train-draft: a text file. There should be hundreds of inputs like those that the model will see. "
        "A quarter or less is held out for choosing and testing.",
        metavar="PATH",
    ))  # fmt: skip
    card: "Card | str | Path | None" = field(default=None, metadata=option(
        f"{CARD} It is the teacher's.", kind=Path,
    ))  # fmt: skip
    augment: str | None = field(default=None, metadata=option(
        "Image augmentation: none, or some of flip,crop,brightness.", default="chosen by the card",
        metavar="CHANGES",
        heading="Training",
    ))  # fmt: skip
    features: bool = field(default=False, metadata=option(
        "Also match intermediate features of both models. They are values that both graphs have by name, "
        "also if the student has some of the teacher's channels.",
        heading="Training",
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int, ...]] | None = field(default=None, metadata=same(BuildRequest, "shapes"))
    trust_pickle: bool = field(default=False, metadata=same(BuildRequest, "trust_pickle"))


@dataclass(frozen=True)
class DraftRequest(TrainingRequest):
    """Arguments of a training of a language model's draft."""

    model: str | Path = field(metadata=option(
        "GGUF file or Hugging Face folder of type llama, qwen2 or qwen3.", python_only=True,
    ))  # fmt: skip
    _: KW_ONLY
    layers: int | None = field(default=None, metadata=option(
        "Number of layers of the draft model.", default="an eighth of TEACHER's", minimum=1,
    ))  # fmt: skip
    samples: str | Path | None = field(default=None, metadata=option(
        "Text file in UTF-8: the model's texts begin with passages of it. None means one that comes with "
        "EdgeKit.",
        python_only=True,
    ))  # fmt: skip

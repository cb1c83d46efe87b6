"""Requests for a training: every option of ``edgekit model distil``, declared once."""

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


def parse_targets(text: str) -> tuple[str, ...]:
    """Parse ``ort,tflite``."""
    return tuple(target.strip() for target in text.split(","))


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Arguments of every training."""

    epochs: float | None = field(default=None, metadata=option(
        "Number of passes over the samples.", help="Number of passes over the samples.",
    ))  # fmt: skip
    minutes: float | None = field(default=None, metadata=option(
        "When training ends at the latest. One of both is needed.", help="Time limit of the training.",
    ))  # fmt: skip
    batch: int | None = field(default=None, metadata=option(
        "Samples of one step; None: 64, or as many as have 2 GB of values in the student; for a draft 4 "
        "texts.",
        help="Batch size.  [default: 64, or less for a large model]",
        heading="Training",
    ))  # fmt: skip
    learning_rate: float | None = field(default=None, metadata=option(
        "The greatest; it rises at first and falls to 0. None: 0.005, and a third of it as often as the "
        "answers become worse than before training, which then begins again; for a draft 0.0005.",
        help="Maximum learning rate.  [default: 0.005, lowered if the student gets worse]",
        heading="Training",
    ))  # fmt: skip
    seed: int = field(default=0, metadata=option(
        "With ``epochs`` the same one gives the same weights on the same machine.",
        help="Random seed. The same seed gives the same result.", minimum=0,
        heading="Training",
    ))  # fmt: skip
    threads: int | None = field(default=None, metadata=option(
        "Of the training; None: the cores that this process may use, at most 4.",
        help="Number of threads.  [default: all cores, at most 4]", minimum=1,
        heading="Training",
    ))  # fmt: skip
    checkpoint: str | Path | None = field(default=None, metadata=option(
        "A file that the training is saved to at each of its 20 checks, and at Ctrl-C; ``distil`` deletes it "
        "at the end.",
    ))  # fmt: skip
    resume: bool = field(default=False, metadata=option(
        "Go on from that file.",
        help="Continue from OUTPUT.checkpoint, which an interrupted training leaves.",
        heading="Training",
    ))  # fmt: skip
    progress: "Progress" = field(default=BuildRequest.progress, metadata=same(BuildRequest, "progress"))


@dataclass(frozen=True)
class DistilRequest(TrainingRequest):
    """Arguments of ``edgekit.distil``."""

    teacher: "str | Path | Source" = field(metadata=option(
        "A model as :func:`edgekit.build` takes it.",
    ))  # fmt: skip
    _: KW_ONLY
    student: "str | Path | Source" = field(metadata=option(
        "A smaller one with the same inputs and outputs, e.g. of :func:`edgekit.shrink`, or a PyTorch "
        "module; float32, all of its operators known to ``edgekit.compiler.compress.torch``.",
        help="Smaller model with the same inputs and outputs, e.g. from edgekit model shrink.", kind=Path,
    ))  # fmt: skip
    samples: str | Path | Sequence["Sample"] = field(metadata=option(
        "Inputs like those that the model will see, without labels: hundreds or more. A quarter or less is "
        "held out for choosing and testing.",
        help="Folder or glob of .npz or .npy files or, with a card, images and videos. No labels are needed. "
        "With --train-draft: a text file.",
        metavar="PATH",
    ))  # fmt: skip
    card: "Card | str | Path | None" = field(default=None, metadata=option(
        "Of the teacher: how samples become inputs, which inputs are pictures, and the task.",
        help="Card (card.toml) that describes the model's pre- and post-processing.", kind=Path,
    ))  # fmt: skip
    augment: str | None = field(default=None, metadata=option(
        "How pictures are changed: ``none``, or some of ``flip,crop,brightness``; None: as suits the card.",
        help="Image augmentation: none, or some of flip,crop,brightness.  [default: chosen by the card]",
        metavar="CHANGES",
        heading="Training",
    ))  # fmt: skip
    features: bool = field(default=False, metadata=option(
        "Whether values that both graphs have by name are compared too, also where the student has some of "
        "the teacher's channels.",
        help="Also match intermediate features of both models.",
        heading="Training",
    ))  # fmt: skip
    quantize: Sequence[str] = field(default=(), metadata=option(
        "Targets whose int8 the student is trained for: it learns with their rounding, and there is a result "
        "for each, with Q/DQ pairs and the scales that were learned. It is judged in int8 before training "
        "too; of several targets, the one is judged whose result is the worst.",
        help="Train with the int8 rounding of these targets; writes a model with learned scales for each.",
        metavar="TARGET[,TARGET]", parse=parse_targets,
        heading="Training",
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int, ...]] | None = field(default=None, metadata=same(
        BuildRequest, "shapes", doc="Static shapes by input name.",
    ))  # fmt: skip
    trust_pickle: bool = field(default=False, metadata=same(BuildRequest, "trust_pickle"))


@dataclass(frozen=True)
class DraftRequest(TrainingRequest):
    """Arguments of a training of a language model's draft."""

    model: str | Path = field(metadata=option(
        "A GGUF file or a Hugging Face folder of type llama, qwen2 or qwen3.",
    ))  # fmt: skip
    _: KW_ONLY
    layers: int | None = field(default=None, metadata=option(
        "Of the draft; None: an eighth of the model's.",
        help="Number of layers of the draft model.  [default: an eighth of TEACHER's]", minimum=1,
    ))  # fmt: skip
    samples: str | Path | None = field(default=None, metadata=option(
        "A text file, UTF-8: passages of it are what the model's texts begin with; None: one that comes with "
        "EdgeKit.",
    ))  # fmt: skip

"""Request for a build: every option of ``edgekit build``, declared once (docs/decisions/0047).

A new option is one field here: ``edgekit.build`` takes it, ``edgekit build`` spells it, the child process
gets it, the manifest stores it, ``[options]`` of a matrix may hold it, and ``edgekit rebuild`` builds with it
again. Names of the host side are quoted: the command line loads this file.
"""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.system.declared_options import declared, option
from edgekit.target.precisions import names_to_ask_for

if TYPE_CHECKING:
    from edgekit.compiler.build.progress import Progress, Stage
    from edgekit.compiler.evaluate.samples import Sample
    from edgekit.compiler.importers.contract import Source
    from edgekit.processing.card import Card


def profiles() -> Iterable[str]:
    """Return the names of installed targets and device profiles."""
    from edgekit.target.installed_profiles import profile_names

    return profile_names()


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse ``NAME=1x3x480x640``; ``NAME=`` is a scalar. Without a name it is for the one image.

    >>> parse_shape("images=1x3x480x640"), parse_shape("1x3")
    (('images', (1, 3, 480, 640)), ('', (1, 3)))
    """
    name, equals, sizes = text.rpartition("=")
    parts = sizes.lower().split("x") if sizes else []
    named = bool(name) if equals else len(parts) > 1  # one number without a name is a slip
    if not named or not all(p.isascii() and p.isdigit() and int(p) > 0 for p in parts):
        raise ValueError(", with sizes of 1 or more")
    return name, tuple(map(int, parts))


def parse_layout(text: str) -> tuple[str, str]:
    """Parse ``nhwc`` or ``NAME=nhwc``; without a name it is for all others."""
    name, equals, layout = text.rpartition("=")
    if bool(name) != bool(equals) or not layout:
        raise ValueError
    return name, layout


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parse ``16,64``."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 7 for part in parts):
        raise ValueError(": numbers of tokens")
    return tuple(map(int, parts))


def silent(stage: "Stage") -> None:
    """Report nothing."""


@dataclass(frozen=True)
class BuildRequest:
    """Arguments of a build, as ``edgekit.build`` takes them and documents them."""

    model: "str | Path | Source" = field(metadata=option(
        "Path of an ``.onnx`` file, or of another framework's that an importer takes (docs/importing.md), "
        "or a framework's object; or a language model: a ``.gguf`` file.",
        kind=Path, models="any", stored=False, again="Its model.  [default: beside BUNDLE]",
    ))  # fmt: skip
    _: KW_ONLY
    targets: Sequence[str] = field(metadata=option(
        "Targets (``ort``) or device profiles (``rpi5``).",
        help="Target or device profile. Repeatable.",
        flags=("-t", "--target"), metavar="TARGET", repeatable="values", completions=profiles,
        models="any", stored=False,
    ))  # fmt: skip
    precision: str = field(default="fp32", metadata=option(
        "``fp32``, ``fp16`` (weights), ``int8``, ``int8-weights``, ``int8-dynamic``, or ``auto``: all of "
        "these, and of int8 every variant with a gain. int8 needs samples, unless the model has Q/DQ pairs, "
        "which are kept as they are. A variant that is slower than fp32, or the same, is rejected. "
        "``palette6``, ``palette4``: palettized weights for Core ML. ``bf16``, ``fp16-arithmetic``: floats "
        "computed in a narrower type, where the processor has it; ``auto`` tries them where this one does. "
        "``fp8``: for TensorRT on Thor; needs samples. Of a language model ``fp32``, ``fp16``, ``int8``, "
        "``int4``, or ``auto``: the last two.",
        help=f"Of the variants: {', '.join(names_to_ask_for())}, which tries several and keeps the best "
        "trade-offs.",
        metavar="PRECISION", choices=names_to_ask_for(), models="any", stored=False,
    ))  # fmt: skip
    samples: str | Path | Sequence["Sample"] | None = field(default=None, metadata=option(
        "What int8 is calibrated on and variants are verified with: a folder or glob, or dicts of arrays; "
        "None for random ones. A third of them is held out for testing.",
        help="Folder or glob of .npz or .npy files or, with a card, images and videos.",
        metavar="PATH", stored=False, again="The samples that it was built on.",
    ))  # fmt: skip
    card: "Card | str | Path | None" = field(default=None, metadata=option(
        "Describes pre- and postprocessing; it is stored in the bundle.",
        help="card.toml: pre- and post-processing of the model.",
        kind=Path, stored=False, again="Its card.  [default: the one in BUNDLE]",
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int, ...]] | None = field(default=None, metadata=option(
        "Static shapes by input name, for inputs whose dimensions are dynamic or stale. The card's shapes "
        'are used where none is given here. The name "" stands for the only input, or the only one of four '
        "dimensions. A batch that is left open is 1, which the report says.",
        help="Static shape of an input; without a name, of the one image. Repeatable.",
        flags=("--shape",), metavar="[NAME=]1x3x480x640", parse=parse_shape, repeatable="by name",
        stored=False,
    ))  # fmt: skip
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = field(default=None, metadata=option(
        "What a PyTorch module or a JAX function is called with, which both trace: arrays in the order of "
        "its parameters, or a mapping by their names, e.g. what a tokenizer returns.",
        stored=False,
    ))  # fmt: skip
    max_drop: str | None = field(default=None, metadata=option(
        "What int8 and smaller models may lose: ``2%`` of the task's own metric where the samples are "
        "labelled, else of the fidelity to the float model; or the least SNR, ``24dB``. None: "
        "docs/quantization.md.",
        help="Accuracy int8 may lose (task metric or agreement), or its minimum SNR.",
        metavar="2%|24dB", models="any",
    ))  # fmt: skip
    time_budget: float | None = field(default=None, metadata=option(
        "Seconds to search for int8, for all targets together; None: 60, for auto 180.",
        help="Time limit of the int8 search.  [default: 60; 180 for auto]",
        metavar="SECONDS",
    ))  # fmt: skip
    force: bool = field(default=False, metadata=option(
        "Ship a rejected int8 variant, marked as such.",
        help="Ship rejected int8 variants, marked as such.",
        models="any",
    ))  # fmt: skip
    fallback: bool = field(default=True, metadata=option(
        "Whether the float parent of an int8 variant is in the bundle too.",
        help="Leave the float parent of an int8 variant out of the bundle.",
    ))  # fmt: skip
    io: str | Mapping[str, str] | None = field(default=None, metadata=option(
        "How artifacts store their inputs and outputs, for use without our runtime: ``nchw``, as the source "
        "has them, or ``nhwc``, axis 1 last (only tflite has it); for every one of four axes, or by name. "
        "``uint8``: the card's image input takes uint8 [1, H, W, C] in RGB, from sessions too; mean, std, "
        "colour order and layout are folded into the model (ort, openvino, tflite).",
        help="Inputs and outputs of the compiled file. uint8: the card's image input takes bytes, channels "
        "last (ort, openvino, tflite). nhwc: channels last (tflite). int8: integers. Or by name; repeatable.",
        metavar="[NAME=]nhwc|uint8|int8", parse=parse_layout, repeatable="by name", stored=False,
    ))  # fmt: skip
    shrink: str | None = field(default=None, metadata=option(
        "``auto``: also variants of smaller models, with 10, 20 and 30 % fewer multiplications "
        "(docs/shrinking.md), in fp32, fp16, int8 or auto; needs samples. They are held to ``max_drop`` too "
        "and kept only where they are faster than every variant that is more accurate. A session runs them "
        "only where they are asked for. Or ``-50%``: one of that size, held to ``max_drop`` where given.",
        help="Also build models with fewer multiplications, kept where faster than all that are more "
        "accurate. auto: 10, 20 and 30 % fewer.",
        metavar="auto|-50%",
    ))  # fmt: skip
    distil: str | None = field(default=None, metadata=option(
        "How long each smaller model is trained to answer as the whole one, e.g. ``20min`` or ``12epochs``, "
        "in float and with int8's rounding; needs PyTorch, and hundreds of samples without labels. All "
        "samples are used; those for testing are not trained on.",
        help="Train each smaller model on MODEL's answers, e.g. 20min or 12epochs (extra train).",
        metavar="TIME",
    ))  # fmt: skip
    context: int | None = field(default=None, metadata=option(
        "Of a language model (docs/language-models.md): most tokens of a text with its answer; None: 2048, "
        "or as many as the model has.",
        help="Of a language model: longest text.  [default: 2048]",
        metavar="TOKENS", least=64, models="language",
    ))  # fmt: skip
    lengths: Sequence[int] | None = field(default=None, metadata=option(
        "Of a text encoder: tokens, ascending, at which it is compiled too, beside the card's own length; a "
        "text runs at the shortest that holds it (docs/embeddings.md).",
        help="Of a text encoder with a card: tokens that it is compiled at too. A text runs at the fewest "
        "that hold it.",
        metavar="16,64", parse=parse_lengths,
    ))  # fmt: skip
    draft: Path | str | None = field(default=None, metadata=option(
        "Of a language model: path of a smaller one of the same tokens. It is built for the same targets, "
        "and sessions let it guess where that is faster; texts stay the same.",
        help="Of a language model: a smaller one of the same tokens, which guesses where that is faster.",
        metavar="MODEL", models="language", stored=False,
    ))  # fmt: skip
    trust_pickle: bool = field(default=False, metadata=option(
        "Whether a model file that is a Python pickle may be loaded, which runs code in it.",
        help="Load MODEL though it is a Python pickle, which runs code in it.",
        models="any", stored=False,
        again="Load the model though it is a Python pickle, which runs code in it.",
    ))  # fmt: skip
    trusted: bool = field(default=False, metadata=option(
        "Open a file in this process, not in a child (docs/security.md). Objects always are.",
        help="Work on MODEL in this process. Default: in a child process, which may crash.",
        models="any", stored=False, local=True,
        again="Work on the model in this process. Default: in a child process, which may crash.",
    ))  # fmt: skip
    progress: "Progress" = field(default=silent, metadata=option(
        "Called as each stage begins and ends.", models="any", stored=False, local=True,
    ))  # fmt: skip

    def given_beside(self, *models: str) -> list[str]:
        """Return the names, as a user spells them, of what is given and applies to other kinds of models."""
        found = declared(type(self))
        return [each.shown for each in found if each.option.models not in models and each.is_given(self)]

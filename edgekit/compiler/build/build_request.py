"""Request for a build: every option of ``edgekit build``, declared once (docs/decisions/0047).

A new option is one field here: ``edgekit.build`` takes it, ``edgekit build`` spells it, the child process
gets it, the manifest stores it, ``[options]`` of a matrix may hold it, and ``edgekit bundle rebuild`` builds
with it again. Names of the host side are quoted: the command line loads this file.
"""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.system.declared_options import declared, option
from edgekit.system.progress import report
from edgekit.system.size_range import as_range
from edgekit.target.precisions import FULL_PRECISION, names_to_ask_for

if TYPE_CHECKING:
    from edgekit.compiler.evaluate.samples import Sample
    from edgekit.compiler.importers.contract import Source
    from edgekit.processing.card import Card
    from edgekit.system.progress import Progress


def profiles() -> Iterable[str]:
    """Return the names of installed targets and device profiles."""
    from edgekit.target.installed_profiles import profile_names

    return profile_names()


def parse_shape(text: str) -> tuple[str, tuple[int | str, ...] | tuple[tuple[int, ...], ...]]:
    """Parse ``NAME=1x3x480x640``; ``NAME=`` is a scalar. Without a name it is for the one image. Commas
    separate several shapes. A size may be a range, ``1..512``.

    >>> parse_shape("images=1x3x480x640"), parse_shape("1x3"), parse_shape("ids=1x16,1x64")
    (('images', (1, 3, 480, 640)), ('', (1, 3)), ('ids', ((1, 16), (1, 64))))
    >>> parse_shape("ids=1x1..512")
    ('ids', (1, '1..512'))
    """
    name, equals, sizes = text.rpartition("=")
    shapes = [shape.split("x") for shape in sizes.lower().split(",")] if sizes else [[]]
    named = bool(name) if equals else len(shapes[0]) > 1  # one number without a name is a slip
    ranges = [part for parts in shapes for part in parts if ".." in part]
    if ranges and len(shapes) > 1:
        raise ValueError("; give a range, or several shapes")
    if any(as_range(part) is None for part in ranges):
        raise ValueError("; a range is written 1..512, the smaller size first")
    if not named or not all(
        part in ranges or (part.isascii() and part.isdigit() and len(part) < 20 and int(part) > 0)
        for parts in shapes
        for part in parts
    ):
        raise ValueError(", with sizes of 1 or more")
    parsed = [tuple(part if part in ranges else int(part) for part in parts) for parts in shapes]
    return name, tuple(parsed) if len(parsed) > 1 else parsed[0]  # type: ignore[return-value]


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


def parse_adapter(text: str) -> tuple[str, str]:
    """Parse ``NAME=ADAPTER``.

    >>> parse_adapter("pirate=lora/a=b")
    ('pirate', 'lora/a=b')
    """
    name, _, path = text.partition("=")
    if not name or not path:
        raise ValueError(", e.g. pirate=FOLDER")
    return name, path


@dataclass(frozen=True)
class BuildRequest:
    """Arguments of a build, as ``edgekit.build`` takes them and documents them."""

    model: "str | Path | Source" = field(metadata=option(
        "Path of an ``.onnx`` file, of another framework's file (docs/importing.md), of a ``.gguf`` file "
        "or a Hugging Face folder (language models); an address ``hf://OWNER/NAME``; or a framework's model "
        "object.",
        kind=Path, models="any", stored=False, flags=("--source",),
        rebuild_help="Path of the model.  [default: beside BUNDLE]",
    ))  # fmt: skip
    _: KW_ONLY
    targets: Sequence[str] = field(metadata=option(
        "Targets (``ort``) or device profiles (``rpi5``).",
        help="Target or device profile, e.g. ort, tflite or rpi5; edgekit targets lists them. Repeatable.",
        flags=("-t", "--target"), metavar="TARGET", repeatable="values", completions=profiles,
        models="any", stored=False,
    ))  # fmt: skip
    precision: str | None = field(default=None, metadata=option(
        "``fp32``, ``fp16`` (weights), ``int8``, ``int8-weights``, ``int8-dynamic``, or ``auto``: all of "
        "these, and of int8 every variant with a gain. int8 needs samples, unless the model has Q/DQ "
        "pairs, which are kept as they are. A variant that is slower than fp32, or the same, is rejected. "
        "``palette6``, ``palette4``: palettized weights for Core ML. ``bf16``, ``fp16-arithmetic``: floats "
        "computed in a narrower type, where the processor has it; ``auto`` tries them where this one does. "
        "``fp8``: for TensorRT on Thor; needs samples. Language models: ``fp32``, ``fp16``, ``int8``, "
        "``int4``, or ``auto``, which builds the last two. None: the profile's own, which is ``fp16`` for "
        "iPhones, whose Neural Engine computes in it, and ``fp32`` for the others.",
        help=f"Precision of the variants: {', '.join(names_to_ask_for())}. auto tries several and keeps the "
        "best trade-offs.  [default: fp32; fp16 for iPhones]",
        metavar="PRECISION", choices=names_to_ask_for(), models="any", stored=False,
    ))  # fmt: skip
    samples: str | Path | Sequence["Sample"] | None = field(default=None, metadata=option(
        "Samples for int8 calibration and verification: a folder or glob, or dicts of arrays. None: random "
        "samples. A third of them is held out for testing.",
        help="Folder or glob of .npz or .npy files or, with a card, images and videos.",
        metavar="PATH", stored=False, rebuild_help="Samples of the first build.",
    ))  # fmt: skip
    card: "Card | str | Path | None" = field(default=None, metadata=option(
        "Describes pre- and postprocessing; it is stored in the bundle.",
        help="Card (card.toml) that describes the model's pre- and post-processing.",
        kind=Path, stored=False,
        rebuild_help="Card (card.toml) that describes the model's pre- and post-processing.  "
        "[default: the one in BUNDLE]",
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int | str, ...] | Sequence[tuple[int, ...]]] | None = field(
        default=None, metadata=option(
        "Static shapes by input name, for inputs whose dimensions are dynamic or stale; the default is the "
        "card's shapes. The name \"\" stands for the only input, or the only one of four dimensions. An open "
        "batch dimension is 1, and the report states it. Several shapes of an input are compiled into each "
        "variant, and a run takes the shape of its arrays; a size may be a range, ``(1, \"1..512\")`` "
        "(docs/shapes.md).",
        help="Static shape of an input; without NAME, of the only image input. Several, separated by commas, "
        "or a range of one size (ids=1x1..512), are compiled into one bundle. Repeatable.",
        flags=("--shape",), metavar="[NAME=]1x3x480x640", parse=parse_shape, repeatable="by name",
        stored=False,
    ))  # fmt: skip
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = field(default=None, metadata=option(
        "Arguments for tracing a PyTorch module or a JAX function: arrays in the order of its parameters, "
        "or a mapping by parameter name, e.g. the output of a tokenizer.",
        stored=False,
    ))  # fmt: skip
    max_drop: str | None = field(default=None, metadata=option(
        "Maximum accuracy loss of int8 variants and of smaller models: ``2%`` of the task's metric if the "
        "samples are labelled, else of the agreement with the float model; or a minimum SNR, ``24dB``. "
        "None: the limits in docs/quantization.md.",
        help="Maximum accuracy loss of int8 variants (task metric or agreement), or their minimum SNR.",
        metavar="2%|24dB", models="any",
        heading="Accuracy",
    ))  # fmt: skip
    time_budget: float | None = field(default=None, metadata=option(
        "Time limit of the int8 search in seconds, for all targets together. None: 60, or 180 for ``auto``.",
        help="Time limit of the int8 search.  [default: 60; 180 for auto]",
        metavar="SECONDS",
        heading="Accuracy",
    ))  # fmt: skip
    force: bool = field(default=False, metadata=option(
        "Ship rejected int8 variants, marked as rejected, and build a model that is worth nothing on the "
        "labels of the samples.",
        help="Ship rejected int8 variants, marked as rejected; build although the model fails on the labels.",
        models="any",
        heading="Accuracy",
    ))  # fmt: skip
    fallback: bool = field(default=True, metadata=option(
        "Whether the bundle also holds the float variant from which an int8 variant was made.",
        help="Leave the float variant of each int8 variant out of the bundle.",
        heading="Accuracy",
    ))  # fmt: skip
    io: str | Mapping[str, str] | None = field(default=None, metadata=option(
        "Layout and type of the compiled file's inputs and outputs, for apps that do not use this runtime. "
        "``nchw``: as in the source. ``nhwc``: axis 1 last (tflite only), for all inputs and outputs with "
        "four axes, or by name; ``nhwc@android-arm64,rpi5``: for these targets only. ``uint8``: the card's "
        "image input takes uint8 [1, H, W, C] in RGB, from sessions too; mean, std, colour order and layout "
        "are folded into the model (ort, openvino, tflite).",
        help="Layout and type of the compiled file's inputs and outputs, for all or by name; repeatable. "
        "uint8: image bytes, channels last (ort, openvino, tflite). nhwc: channels last (tflite). int8: "
        "integers. The last two may name their targets.",
        metavar="[NAME=]nhwc|uint8|int8[@TARGET,...]", parse=parse_layout, repeatable="by name", stored=False,
        heading="Advanced",
    ))  # fmt: skip
    shrink: str | None = field(default=None, metadata=option(
        "Build smaller models too, by pruning channels (docs/shrinking.md), in fp32, fp16, int8 or auto; "
        "needs samples. ``auto``: models with 10, 20 and 30 % fewer multiplications. They must meet "
        "``max_drop`` and be faster than every more accurate variant. A session runs them only on request. "
        "``-50%``: one model of that size, which must meet ``max_drop`` if it is given.",
        help="Also build pruned models with fewer multiplications. auto: 10, 20 and 30 % fewer, kept if "
        "faster than every more accurate variant.",
        metavar="auto|-50%",
        heading="Accuracy",
    ))  # fmt: skip
    distil: str | None = field(default=None, metadata=option(
        "Training time of each smaller model, e.g. ``20min`` or ``12epochs``. It is distilled from the "
        "whole model, in float and with int8 rounding. Needs PyTorch and hundreds of samples, without "
        "labels. The samples held out for testing are not trained on.",
        help="Distil MODEL into each smaller model for this long, e.g. 20min or 12epochs (extra train).",
        metavar="TIME",
        heading="Accuracy",
    ))  # fmt: skip
    context: int | None = field(default=None, metadata=option(
        "Maximum context length in tokens, prompt and answer together (language models). None: 2048, or "
        "the model's own limit if that is lower.",
        help="Maximum context length in tokens (language models).  [default: 2048]",
        metavar="TOKENS", minimum=64, models="language",
        heading="Advanced",
    ))  # fmt: skip
    lengths: Sequence[int] | None = field(default=None, metadata=option(
        "Further sequence lengths in tokens, ascending, for which a text encoder is compiled, in addition "
        "to the card's. A text runs at the shortest length that holds it (docs/embeddings.md).",
        help="Further sequence lengths in tokens for which a text encoder with a card is compiled. A text "
        "runs at the shortest that holds it.",
        metavar="16,64", parse=parse_lengths,
        heading="Advanced",
    ))  # fmt: skip
    draft: Path | str | None = field(default=None, metadata=option(
        "Path of a draft model for speculative decoding: a smaller language model with the same "
        "vocabulary. It is built for the same targets and used if it is faster and the logits stay the same.",
        help="Draft model for speculative decoding: a smaller language model with the same vocabulary.",
        metavar="MODEL", models="language", stored=False,
        heading="Advanced",
    ))  # fmt: skip
    adapters: Mapping[str, Path | str] | None = field(default=None, metadata=option(
        "Paths of LoRA adapters by name: folders of PEFT, or GGUF files of llama.cpp. The bundle stores each "
        "once, and a text session uses one or another without loading the model again "
        "(docs/language-models.md).",
        help="LoRA adapter of a language model: a folder of PEFT, or a GGUF file of llama.cpp. Repeatable.",
        flags=("--adapter",), metavar="NAME=ADAPTER", parse=parse_adapter, repeatable="by name",
        models="language", stored=False,
        rebuild_help="LoRA adapter of a language model: a folder of PEFT, or a GGUF file of llama.cpp. "
        "Repeatable.",
        heading="Advanced",
    ))  # fmt: skip
    trust_pickle: bool = field(default=False, metadata=option(
        "Load a model file that is a Python pickle. Loading runs the code in it.",
        help="Load the model even if it is a Python pickle. Loading runs the code in it.",
        models="any", stored=False,
        rebuild_help="Load the model even if it is a Python pickle. Loading runs the code in it.",
        heading="Advanced",
    ))  # fmt: skip
    trusted: bool = field(default=False, metadata=option(
        "Open a model file in this process instead of a confined child process (docs/security.md). Model "
        "objects are always used in this process.",
        help="Open the model in this process instead of a confined child process.",
        models="any", stored=False, local=True,
        rebuild_help="Open the model in this process instead of a confined child process.",
        heading="Advanced",
    ))  # fmt: skip
    progress: "Progress" = field(default=report, metadata=option(
        "Callback for progress: called as each stage begins, goes on and ends.",
        models="any", stored=False, local=True,
    ))  # fmt: skip

    @property
    def requested_precision(self) -> str:
        """Return the requested precision; fp32 if none is requested, for models and profiles without their
        own."""
        return self.precision or FULL_PRECISION

    def given_beside(self, *models: str) -> list[str]:
        """Return the names, as a user spells them, of what is given and applies to other kinds of models."""
        fields = declared(type(self))
        return [entry.shown for entry in fields if entry.option.models not in models and entry.is_given(self)]

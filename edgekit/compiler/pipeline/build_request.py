"""Request for a build: every option of ``edgekit build``, declared once (docs/decisions/0047).

A new option is one field here: ``edgekit.build`` takes it, ``edgekit build`` spells it, the child process
gets it, the manifest stores it, ``[options]`` of a matrix may hold it, and ``edgekit bundle rebuild`` builds
with it again. Names of the host side are quoted: the command line loads this file.
"""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.system.declared_options import declared, option
from edgekit.system.progress import report
from edgekit.system.size_range import as_range
from edgekit.target.precisions import FULL_PRECISION, names_to_ask_for

if TYPE_CHECKING:
    from edgekit.compiler.card_inference.draft import Draft
    from edgekit.compiler.evaluate.samples import SampleSource
    from edgekit.compiler.importers.contract import Source
    from edgekit.processing.card import Card
    from edgekit.system.progress import Progress

TARGETS = "Target or device profile, e.g. ort, tflite or rpi5; edgekit targets lists them."
SAMPLES = "Folder or glob of .npz or .npy files or, with a card, images and videos."
CARD = "Card (card.toml) that describes the model's pre- and post-processing."
"""First sentences of options that several requests have."""


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
    """Build a model for targets and devices, and verify each variant by running it here.

    Args:
        model: Path of the model.
        targets: Target or device profile, e.g. ort, tflite or rpi5; edgekit targets lists them.
        precision: Precision of the variants: fp32, fp16, fp16-arithmetic, bf16, int8, int8-weights,
            int8-dynamic, palette6, fp8, palette4, int4, auto; auto tries several and keeps the best
            trade-offs.
        samples: Folder or glob of .npz or .npy files or, with a card, images and videos.
        card: Card (card.toml) that describes the model's pre- and post-processing.
        shapes: Static shape of an input by its name, or of the only image input; several, or a
            range of one size (1x1..512), go into one bundle.
        example_inputs: Arguments for tracing a PyTorch module or a JAX function: arrays in the
            order of its parameters, or a mapping by parameter name, e.g. the output of a tokenizer.
        max_drop: Maximum accuracy loss of int8 variants and smaller models (task metric or
            agreement, ``2%``), or their minimum SNR (``24dB``).
        time_budget: Time limit of the int8 search in seconds, for all targets together.
        force: Ship rejected int8 variants, marked as rejected; build although the model fails on
            the labels.
        fallback: Leave the float variant of each int8 variant out of the bundle (``False`` in
            Python).
        io: Layout and type of the compiled file's inputs and outputs, for all or by name; uint8:
            image bytes (ort, openvino, tflite), nhwc: channels last (tflite), int8: integers.
        shrink: Also build pruned models with fewer multiplications; auto: 10, 20 and 30 % fewer,
            kept if faster than every more accurate variant.
        distil: Distil the model into each smaller model for this long, e.g. 20min or 12epochs
            (extra train).
        context: Maximum context length in tokens (language models).
        lengths: Further sequence lengths in tokens for which a text encoder with a card is
            compiled.
        draft: Draft model for speculative decoding: a smaller language model with the same
            vocabulary.
        adapters: LoRA adapter of a language model by its name: a folder of PEFT, or a GGUF file of
            llama.cpp.
        chat_template: Chat template of a language model, instead of its own: a Jinja file, or chatml,
            llama3 or gemma.
        reference: ONNX model that the variants of a model package are compared with.
        trust_pickle: Load the model even if it is a Python pickle; loading runs the code in it.
        trusted: Open the model in this process instead of a confined child process.
        progress: Callback for progress, called as each stage begins, goes on and ends; False for
            none.
    """

    model: "str | Path | Source" = field(metadata=option(
        "Path of the model. It is an ``.onnx`` file, another framework's file (docs/importing.md), a "
        "``.gguf`` file or a Hugging Face folder (language models). It may be an address, "
        "``hf://OWNER/NAME``, or a framework's model object.",
        kind=Path, models="any", stored=False, flags=("--source",), python_only=True, rebuild=True,
    ))  # fmt: skip
    _: KW_ONLY
    targets: Sequence[str] | str = field(metadata=option(
        TARGETS,
        flags=("-t", "--target"), metavar="TARGET", repeatable="values", completions=profiles,
        models="any", stored=False,
    ))  # fmt: skip
    precision: str | None = field(default=None, metadata=option(
        f"Precision of the variants: {', '.join(names_to_ask_for())}; auto tries several and keeps the best "
        "trade-offs. Language models: fp32, fp16, int8, int4, or auto, which builds the last two. int8 needs "
        "samples, unless the model has Q/DQ pairs, which are kept as they are. A variant that is slower than "
        "fp32, or the same, is rejected. Palettized weights are for Core ML, fp8 is for TensorRT on Thor. "
        "Narrow arithmetic (bf16, fp16-arithmetic) needs a processor that has it.",
        default="fp32; fp16 for iPhones",
        metavar="PRECISION", choices=names_to_ask_for(), models="any", stored=False,
    ))  # fmt: skip
    samples: "SampleSource" = field(default=None, metadata=option(
        f"{SAMPLES} They calibrate int8 and verify; from Python they may be dicts of arrays by input name, "
        "or one array with the samples along its first axis. A third of them is held out for testing. "
        "Without samples, random ones are used.",
        kind=str, metavar="PATH", stored=False, rebuild=True,
    ))  # fmt: skip
    card: "Card | Draft | str | Path | None" = field(default=None, metadata=option(
        f"{CARD} It is stored in the bundle.",
        kind=Path, stored=False, rebuild=True,
    ))  # fmt: skip
    shapes: Mapping[str, tuple[int | str, ...] | Sequence[tuple[int, ...]]] | None = field(
        default=None, metadata=option(
        "Static shape of an input by its name, or of the only image input; several, or a range of one size "
        "(1x1..512), go into one bundle. It is for inputs whose dimensions are dynamic or stale; the card's "
        "shapes are the default. In Python, the name \"\" stands for the only input or the only one of four "
        "dimensions, and a range is ``(1, \"1..512\")``. An open batch dimension is 1, and the report states "
        "it (docs/shapes.md).",
        flags=("--shape",), metavar="[NAME=]1x3x480x640", parse=parse_shape, repeatable="by name",
        stored=False,
    ))  # fmt: skip
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = field(default=None, metadata=option(
        "Arguments for tracing a PyTorch module or a JAX function: arrays in the order of its parameters, "
        "or a mapping by parameter name, e.g. the output of a tokenizer.",
        stored=False, python_only=True,
    ))  # fmt: skip
    max_drop: str | None = field(default=None, metadata=option(
        "Maximum accuracy loss of int8 variants and smaller models (task metric or agreement, ``2%``), or "
        "their minimum SNR (``24dB``). The metric is the task's if the samples are labelled, else the "
        "agreement with the float model. docs/quantization.md has the default.",
        metavar="2%|24dB", models="any",
        heading="Accuracy",
    ))  # fmt: skip
    time_budget: float | None = field(default=None, metadata=option(
        "Time limit of the int8 search in seconds, for all targets together.",
        default="none; the number of candidates ends it", metavar="SECONDS",
        heading="Accuracy",
    ))  # fmt: skip
    force: bool = field(default=False, metadata=option(
        "Ship rejected int8 variants, marked as rejected; build although the model fails on the labels.",
        models="any",
        heading="Accuracy",
    ))  # fmt: skip
    fallback: bool = field(default=True, metadata=option(
        "Leave the float variant of each int8 variant out of the bundle (``False`` in Python).",
        heading="Accuracy",
    ))  # fmt: skip
    io: str | Mapping[str, str] | None = field(default=None, metadata=option(
        "Layout and type of the compiled file's inputs and outputs, for all or by name; uint8: image bytes "
        "(ort, openvino, tflite), nhwc: channels last (tflite), int8: integers. It is for apps that do not "
        "use this runtime. With uint8 the card's image input takes [1, H, W, C] in RGB, from sessions too; "
        "mean, std, colour order and layout are folded into the model. ``nhwc@android-arm64,rpi5`` is for "
        "these targets only.",
        metavar="[NAME=]nhwc|uint8|int8[@TARGET,...]", parse=parse_layout, repeatable="by name", stored=False,
        heading="Advanced",
    ))  # fmt: skip
    shrink: str | None = field(default=None, metadata=option(
        "Also build pruned models with fewer multiplications; auto: 10, 20 and 30 % fewer, kept if faster "
        "than every more accurate variant. They have the precisions fp32, fp16, int8 or auto, need samples, "
        "and must meet ``max_drop`` (docs/shrinking.md). A session runs them only on request. With ``-50%`` "
        "there is one model of that size.",
        metavar="auto|-50%",
        heading="Accuracy",
    ))  # fmt: skip
    distil: str | None = field(default=None, metadata=option(
        "Distil the model into each smaller model for this long, e.g. 20min or 12epochs (extra train). It "
        "learns in float and with int8 rounding. It needs PyTorch and hundreds of samples, without labels. "
        "The samples held out for testing are not trained on.",
        metavar="TIME",
        heading="Accuracy",
    ))  # fmt: skip
    context: int | None = field(default=None, metadata=option(
        "Maximum context length in tokens (language models). It counts the prompt and the answer, and is at "
        "most the model's own limit.",
        default="2048", metavar="TOKENS", minimum=64, models="kind",
        heading="Advanced",
    ))  # fmt: skip
    lengths: Sequence[int] | None = field(default=None, metadata=option(
        "Further sequence lengths in tokens for which a text encoder with a card is compiled. They ascend. A "
        "text runs at the shortest length that holds it (docs/embeddings.md).",
        metavar="16,64", parse=parse_lengths,
        heading="Advanced",
    ))  # fmt: skip
    draft: Path | str | None = field(default=None, metadata=option(
        "Draft model for speculative decoding: a smaller language model with the same vocabulary. It is "
        "built for the same targets and used if it is faster and the logits stay the same.",
        metavar="MODEL", models="kind", stored=False,
        heading="Advanced",
    ))  # fmt: skip
    adapters: Mapping[str, Path | str] | None = field(default=None, metadata=option(
        "LoRA adapter of a language model by its name: a folder of PEFT, or a GGUF file of llama.cpp. The "
        "bundle stores each once, and a text session uses one or another without loading the model again "
        "(docs/language-models.md).",
        flags=("--adapter",), metavar="NAME=ADAPTER", parse=parse_adapter, repeatable="by name",
        models="kind", stored=False, rebuild=True,
        heading="Advanced",
    ))  # fmt: skip
    chat_template: Path | str | None = field(default=None, metadata=option(
        "Chat template of a language model, instead of its own: a Jinja file, or chatml, llama3 or gemma. "
        "The token after an answer in it ends texts as well. A format's name needs a model with its tokens.",
        metavar="FILE|NAME", models="kind", stored=False, rebuild=True,
        heading="Advanced",
    ))  # fmt: skip
    reference: Path | str | None = field(default=None, metadata=option(
        "ONNX model that the variants of a model package are compared with. By default it is the package's "
        "most exact variant for the CPU (docs/model-packages.md).",
        metavar="MODEL.onnx", models="kind", stored=False, rebuild=True,
        heading="Advanced",
    ))  # fmt: skip
    trust_pickle: bool = field(default=False, metadata=option(
        "Load the model even if it is a Python pickle; loading runs the code in it.",
        models="any", stored=False, rebuild=True,
        heading="Advanced",
    ))  # fmt: skip
    trusted: bool = field(default=False, metadata=option(
        "Open the model in this process instead of a confined child process. Model objects are always used "
        "in this process (docs/security.md).",
        models="any", stored=False, local=True, rebuild=True,
        heading="Advanced",
    ))  # fmt: skip
    progress: "Progress | bool" = field(default=report, metadata=option(
        "Callback for progress, called as each stage begins, goes on and ends; False for none. By default a "
        "terminal or a notebook shows a line.",
        models="any", stored=False, local=True, python_only=True,
    ))  # fmt: skip

    def __post_init__(self) -> None:
        """Take one target for a list of one, and a draft for its card."""
        if isinstance(self.targets, str):
            object.__setattr__(self, "targets", [self.targets])
        object.__setattr__(self, "card", getattr(self.card, "card", self.card))

    @property
    def requested_precision(self) -> str:
        """Return the requested precision; fp32 if none is requested, for models and profiles without their
        own."""
        return self.precision or FULL_PRECISION

    def inapplicable(self, kind_options: Collection[str] | None) -> list[str]:
        """Return the given options that do not apply to the model, as a user spells them.

        Args:
            kind_options: Fields that apply to the model's kind, besides those of any model. None means that
                the model is a graph.
        """
        return [
            entry.shown
            for entry in declared(type(self))
            if entry.is_given(self)
            and entry.option.models != "any"
            and (entry.option.models != "graph" if kind_options is None else entry.name not in kind_options)
        ]

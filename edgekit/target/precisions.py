"""The precisions of variants: one frozen table that host and device read. A new one is a row here, its rules
in the targets that have it, and its cases.

A build may ship several variants of one precision, ``int8``, ``int8-2``, ...: all have the row ``int8``.
Other files ask a row; tests/architecture/test_precisions.py refuses comparisons with names.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Stage = Literal["compiled", "searched", "quantized", "weights", "language", ""]
"""The stage of a build that makes the variants of a precision. ``compiled``: from the float graph.
``searched``: calibrated on samples, by a search. ``quantized``: calibrated, without a search. ``weights``:
weight-only, activations stay float in the graph. ``language``: for language models only
(docs/language-models.md). Empty: unknown."""


class LanguageBar(NamedTuple):
    """Quality limits of a precision on a language model.

    Attributes:
        perplexity: Share by which its perplexity may exceed the float reference's on each kind of text, as
            expected from the divergence of its distributions, and as measured, less the measurement's margin.
        logits_db: Lowest SNR of the logits after the golden prompts: it detects a wrong graph, and perplexity
            measures the rounding. Measured on SmolLM2-135M: docs/language-models.md.
        fitted: Whether its weights are fitted to a calibration text, instead of rounded to the nearest.
    """

    perplexity: float
    logits_db: float
    fitted: bool = False


class SpeechBar(NamedTuple):
    """The build of an encoder-decoder in a precision, and quality limits if it is a speech model.

    Attributes:
        forms: Precisions that its products may be compiled in, the preferred one first.
        figures_db: Lowest SNR of the log probability of no speech.
        words: Share of the recordings' words that may differ from the float model's; the user's, if given.
    """

    forms: tuple[str, ...]
    figures_db: float
    words: float


class Precision(NamedTuple):
    """One precision.

    Attributes:
        name: Name of the variant in the manifest and on the command line.
        stage: Stage of a build that makes its variants.
        parent: The float precision that it must be better than; "" for floats.
        accuracy_rank: 0 is the most accurate, if no evidence says otherwise.
        snr_limit_db: Lowest SNR that verifies. fp32: rounding in another order of summation. fp16: weights
            rounded to 11 bits (about 66 dB each), summed over the depth of a network. int8: for models that
            come quantized, where two correct engines differ by a rounding step in some activations (measured:
            3 to 7 % of the norm), and for weight-only variants that are tested on random samples. bf16: 8
            bits, 18 dB below fp16's arithmetic (measured: EfficientNet-Lite0 29, YOLOX-nano 25).
        element: Its narrowest element type, by ModelPack's name (OCI artifacts); "" for indices into a table.
        for_size: Its purpose is the file size: requested by name, it is shipped without its parent.
        from_table: Its weights are palettized: indices into a table, which the compiler derives from floats.
        rounds_inputs: The kernel rounds its inputs to 8 bits by the range that it finds in them, run by run.
        in_auto: ``--precision auto`` tries it.
        by_name: It can be requested by name.
        language: Limits that it must reach on a language or text-to-text model; None if language models
            are not built in it.
        speech: Build of encoder-decoders in it; None if they are not built.
    """

    name: str
    stage: Stage
    parent: str
    accuracy_rank: int
    snr_limit_db: float
    element: str = ""
    for_size: bool = False
    from_table: bool = False
    rounds_inputs: bool = False
    in_auto: bool = True
    by_name: bool = True
    language: LanguageBar | None = None
    speech: SpeechBar | None = None

    @property
    def is_float(self) -> bool:
        """Return whether values stay floats that any processor supports: such a variant has no parent."""
        return self.stage == "compiled" and not self.parent

    @property
    def is_narrow(self) -> bool:
        """Return whether floats are computed in a narrower type, which needs a processor that has it:
        ``TargetInfo.instruction_sets``. ``--precision auto`` tries it if this machine has it."""
        return self.stage == "compiled" and bool(self.parent)

    @property
    def is_for_tensors(self) -> bool:
        """Return whether ``--precision`` accepts it for models other than language models."""
        return self.by_name and self.stage != "language"


AUTO = "auto"
"""Not a precision: stands for all that are ``in_auto``."""

FULL_PRECISION = "fp32"
"""The precision of the source model: variants are compared with it, and a target compiles it in place of a
precision that it lacks."""

_FLOAT = SpeechBar((FULL_PRECISION,), 60.0, 0.0)
_HALF = SpeechBar(("fp16",), 30.0, 0.02)
_ROUNDED = SpeechBar(("int8-dynamic", "int8-weights"), 3.0, 0.05)

TABLE: tuple[Precision, ...] = (
    Precision(
        FULL_PRECISION, "compiled", "", 0, 100.0, "float32", language=LanguageBar(0.001, 60.0), speech=_FLOAT
    ),
    Precision("fp16", "compiled", "", 1, 45.0, "float16", language=LanguageBar(0.005, 30.0), speech=_HALF),
    Precision("fp16-arithmetic", "compiled", "fp32", 2, 40.0, "float16"),
    Precision("bf16", "compiled", "fp32", 4, 20.0, "bfloat16"),
    Precision("int8", "searched", "fp32", 8, 20.0, "int8", language=LanguageBar(0.01, 10.0), speech=_ROUNDED),
    # int8 with blocks that stay float
    Precision("int8-mixed", "searched", "fp32", 7, 20.0, "int8", by_name=False),
    Precision("int8-weights", "weights", "fp32", 3, 20.0, "int8", for_size=True),
    Precision("int8-dynamic", "weights", "fp32", 6, 20.0, "int8", rounds_inputs=True),
    Precision("palette6", "weights", "fp32", 5, 20.0, for_size=True, from_table=True, in_auto=False),
    Precision("fp8", "quantized", "fp32", 9, 20.0, "float8_e4m3", in_auto=False),
    Precision("palette4", "weights", "fp32", 10, 20.0, for_size=True, from_table=True, in_auto=False),
    Precision("int4", "language", "", 11, 3.0, "int4", language=LanguageBar(0.02, 3.0, fitted=True)),
)
"""In the order in which they are named to the user."""
_BY_NAME = {row.name: row for row in TABLE}


def precision_of(variant_precision: str) -> Precision:
    """Return the row of a variant's precision, numbered or not. One of a newer EdgeKit gets a row without a
    stage that ranks last.

    >>> [precision_of(name).name for name in ("int8-mixed-2", "palette6")]
    ['int8-mixed', 'palette6']
    >>> precision_of("int2").stage, precision_of("int2").accuracy_rank == len(TABLE)
    ('', True)
    """
    name, _, number = variant_precision.rpartition("-")
    row = _BY_NAME.get(variant_precision) or (_BY_NAME.get(name) if number.isdecimal() else None)
    return row or Precision(variant_precision, "", FULL_PRECISION, len(TABLE), TABLE[0].snr_limit_db)


def requested(precision: str) -> tuple[Precision, ...]:
    """Return the rows that a request stands for: its own, or all of ``auto``; none for an unknown one.

    >>> [row.name for row in requested("int8")], len(requested("auto")) > 4, requested("int4")
    (['int8'], True, ())
    """
    rows = (row for row in TABLE if row.is_for_tensors)
    return tuple(row for row in rows if (row.in_auto if precision == AUTO else row.name == precision))


def names_to_ask_for() -> tuple[str, ...]:
    """Return what ``--precision`` takes."""
    return (*(row.name for row in TABLE if row.by_name), AUTO)

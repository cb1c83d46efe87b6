"""The precisions of variants: one frozen table that host and device read. A new one is a row here, its rules
in the targets that have it, and its cases.

A build may ship several variants of one precision, ``int8``, ``int8-2``, ...: all have the row ``int8``.
"""

from __future__ import annotations

from typing import NamedTuple


class Precision(NamedTuple):
    """One precision.

    Attributes:
        name: Of the variant, in the manifest and on the command line.
        parent: The float precision that it must be better than; "" for floats.
        for_size: Its purpose is the file size: requested by name, it is shipped without its parent.
        accuracy_rank: 0 is the most accurate, where no evidence says otherwise.
        snr_limit_db: Lowest SNR that verifies. fp32: rounding in another order of summation. fp16: weights
            rounded to 11 bits (about 66 dB each), summed over the depth of a network. int8: for models that
            come quantized, where two correct engines differ by a rounding step in some activations (measured:
            3 to 7 % of the norm), and for weight-only variants that are tested on random samples. bf16: 8
            bits, 18 dB below fp16's arithmetic (measured: EfficientNet-Lite0 29, YOLOX-nano 25).
        needs_samples: It needs calibration samples.
        weights_alone: Weight-only: activations stay float in the graph.
        from_table: Its weights are palettized: indices into a table, which the compiler derives from floats.
        in_auto: ``--precision auto`` tries it.
        by_name: It can be requested by name.
        narrow_arithmetic: Floats are computed in a narrower type, which needs a processor that has it:
            ``TargetInfo.instruction_sets``. ``--precision auto`` tries it where this machine has it.
        element: Its narrowest element type, by ModelPack's name (OCI artifacts); "" for indices into a table.
        language_only: Only language models have it (docs/language-models.md).
    """

    name: str
    parent: str
    for_size: bool
    accuracy_rank: int
    snr_limit_db: float
    needs_samples: bool
    weights_alone: bool = False
    from_table: bool = False
    in_auto: bool = True
    by_name: bool = True
    narrow_arithmetic: bool = False
    element: str = ""
    language_only: bool = False


AUTO = "auto"
"""Not a precision: stands for all that are ``in_auto``."""

TABLE: tuple[Precision, ...] = (
    Precision("fp32", "", False, 0, 100.0, False, element="float32"),
    Precision("fp16", "", False, 1, 45.0, False, element="float16"),
    Precision("fp16-arithmetic", "fp32", False, 2, 40.0, False, narrow_arithmetic=True, element="float16"),
    Precision("bf16", "fp32", False, 4, 20.0, False, narrow_arithmetic=True, element="bfloat16"),
    Precision("int8", "fp32", False, 8, 20.0, True, element="int8"),
    # int8 with blocks that stay float
    Precision("int8-mixed", "fp32", False, 7, 20.0, True, by_name=False, element="int8"),
    Precision("int8-weights", "fp32", True, 3, 20.0, False, weights_alone=True, element="int8"),
    Precision("int8-dynamic", "fp32", False, 6, 20.0, False, weights_alone=True, element="int8"),
    Precision("palette6", "fp32", True, 5, 20.0, False, weights_alone=True, from_table=True, in_auto=False),
    Precision("fp8", "fp32", False, 9, 20.0, True, in_auto=False, element="float8_e4m3"),
    Precision("palette4", "fp32", True, 10, 20.0, False, weights_alone=True, from_table=True, in_auto=False),
    Precision(
        "int4", "", False, 11, 3.0, False, in_auto=False, by_name=False, element="int4", language_only=True
    ),
)
"""In the order in which they are named to the user."""
_BY_NAME = {row.name: row for row in TABLE}


def precision_of(variant_precision: str) -> Precision | None:
    """The row of a variant's precision, numbered or not; None for one of a newer EdgeKit.

    >>> [row.name if (row := precision_of(name)) else None for name in ("int8-mixed-2", "palette6", "int2")]
    ['int8-mixed', 'palette6', None]
    """
    row = _BY_NAME.get(variant_precision)
    if row is None:
        name, _, number = variant_precision.rpartition("-")
        row = _BY_NAME.get(name) if number.isdecimal() else None
    return row


def accuracy_rank(variant_precision: str) -> int:
    """0 is the most accurate; an unknown precision comes last."""
    row = precision_of(variant_precision)
    return len(TABLE) if row is None else row.accuracy_rank


def names_to_ask_for() -> tuple[str, ...]:
    """What ``--precision`` takes."""
    return (*(row.name for row in TABLE if row.by_name or row.language_only), AUTO)

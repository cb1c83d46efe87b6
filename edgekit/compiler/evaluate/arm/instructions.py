"""Classes of A64 instructions that differ in the pipelines they need.

The encodings are those of the Arm Architecture Reference Manual (DDI 0487), section C4.1, "A64 instruction
set encoding": each row is a mask, the bits under it, and the class. The first row that fits counts.
"""

from __future__ import annotations

from functools import cache

DOT = "dot product"
MATRIX = "matrix multiply"
FMA_Q, FMA_D = "float multiply, 128 bits", "float multiply, 64 bits"
FLOAT_Q, FLOAT_D = "float arithmetic, 128 bits", "float arithmetic, 64 bits"
CONVERT_Q, CONVERT_D = "float convert, 128 bits", "float convert, 64 bits"
DIVIDE_Q, DIVIDE_D = "float divide, 128 bits", "float divide, 64 bits"
WIDENING = "integer multiply, widening"
MULTIPLY_Q, MULTIPLY_D = "integer multiply, 128 bits", "integer multiply, 64 bits"
SHIFT = "shift, narrow or accumulate"
PERMUTE = "permute, 128 bits"
FROM_GENERAL, TO_GENERAL = "from general register", "to general register"
VECTOR = "other vector"
LOAD, LOAD_2, LOAD_3, LOAD_4, LOAD_LANE = "load", "load 2 registers", "load 3", "load 4", "load to lanes"
STORE, STORE_VECTOR, STORE_Q, STORE_2Q = "store", "store vector", "store 128 bits", "store 2 x 128 bits"
BRANCH = "branch"
INTEGER, INTEGER_MULTIPLY = "integer", "integer register multiply"

CLASSES = (
    *(DOT, MATRIX, FMA_Q, FMA_D, FLOAT_Q, FLOAT_D, CONVERT_Q, CONVERT_D, DIVIDE_Q, DIVIDE_D, WIDENING),
    *(MULTIPLY_Q, MULTIPLY_D, SHIFT, PERMUTE, FROM_GENERAL, TO_GENERAL, VECTOR),
    *(LOAD, LOAD_2, LOAD_3, LOAD_4, LOAD_LANE, STORE, STORE_VECTOR, STORE_Q, STORE_2Q),
    *(BRANCH, INTEGER, INTEGER_MULTIPLY),
)

Row = tuple[int, int, str]


def _sized(mask: int, value: int, wide: str, narrow: str) -> tuple[Row, Row]:
    """Return a vector instruction's rows by bit 30, Q: 128 bits or 64."""
    return (mask | 1 << 30, value | 1 << 30, wide), (mask | 1 << 30, value, narrow)


VECTOR_ROWS: tuple[Row, ...] = (
    # three registers, extension: SDOT, UDOT, USDOT; SMMLA, UMMLA, USMMLA; SQRDMLAH
    (0x9F20FC00, 0x0E009400, DOT),
    (0x9F20FC00, 0x0E009C00, DOT),
    (0x9F20F400, 0x0E00A400, MATRIX),
    *_sized(0x9F20F400, 0x0E008400, MULTIPLY_Q, MULTIPLY_D),
    # by element: SDOT, UDOT, SUDOT, USDOT; FMLA, FMLS, FMUL; SMLAL, SMLSL, SMULL and saturating; MLA, MUL
    (0x9F00E400, 0x0F00E000, DOT),
    *_sized(0x9F00B400, 0x0F001000, FMA_Q, FMA_D),
    *_sized(0x9F00F400, 0x0F009000, FMA_Q, FMA_D),
    (0x9F002400, 0x0F002000, WIDENING),
    *_sized(0x9F000400, 0x0F000000, MULTIPLY_Q, MULTIPLY_D),
    # three registers of equal type: FMLA, FMLS; FMUL, FMULX; FDIV; the other float ones
    *_sized(0xBF20FC00, 0x0E20CC00, FMA_Q, FMA_D),
    *_sized(0x9F20FC00, 0x0E20DC00, FMA_Q, FMA_D),
    *_sized(0xBFA0FC00, 0x2E20FC00, DIVIDE_Q, DIVIDE_D),
    *_sized(0x9F20C400, 0x0E20C400, FLOAT_Q, FLOAT_D),
    # MLA, MLS; MUL; SQDMULH, SQRDMULH; shifts by a register; SABA, UABA
    *_sized(0x9F20FC00, 0x0E209400, MULTIPLY_Q, MULTIPLY_D),
    *_sized(0xBF20FC00, 0x0E209C00, MULTIPLY_Q, MULTIPLY_D),
    *_sized(0x9F20FC00, 0x0E20B400, MULTIPLY_Q, MULTIPLY_D),
    (0x9F20E400, 0x0E204400, SHIFT),
    (0x9F20FC00, 0x0E207C00, SHIFT),
    # of half precision: FMLA, FMLS; FMUL, FMULX; FDIV; the other ones
    *_sized(0xBF60FC00, 0x0E400C00, FMA_Q, FMA_D),
    *_sized(0x9F60FC00, 0x0E401C00, FMA_Q, FMA_D),
    *_sized(0xBFE0FC00, 0x2E403C00, DIVIDE_Q, DIVIDE_D),
    *_sized(0x9F60C400, 0x0E400400, FLOAT_Q, FLOAT_D),
    # three registers of different type: SMLAL, SMLSL, SMULL, UMULL and saturating ones
    (0x9F208C00, 0x0E208000, WIDENING),
    # two registers: SADALP, UADALP; SQXTN, UQXTN, SQXTUN; FSQRT; float arithmetic and conversions
    (0x9F3FFC00, 0x0E206800, SHIFT),
    (0x9F3FFC00, 0x0E214800, SHIFT),
    (0xBF3FFC00, 0x2E212800, SHIFT),
    *_sized(0xBFBFFC00, 0x2EA1F800, DIVIDE_Q, DIVIDE_D),
    *_sized(0x9FBEEC00, 0x0EA0E800, FLOAT_Q, FLOAT_D),
    *_sized(0x9F3F8C00, 0x0E218800, CONVERT_Q, CONVERT_D),
    *_sized(0x9F3FFC00, 0x0E216800, CONVERT_Q, CONVERT_D),
    *_sized(0x9F3F8C00, 0x0E398800, CONVERT_Q, CONVERT_D),
    # a constant; shift by a constant, with conversion from and to fixed point
    (0x9FF80400, 0x0F000400, VECTOR),
    *_sized(0x9F80E400, 0x0F00E400, CONVERT_Q, CONVERT_D),
    (0x9F800400, 0x0F000400, SHIFT),
    # copies: DUP and INS from a general register; SMOV, UMOV
    (0xBFE0FC00, 0x0E000C00, FROM_GENERAL),
    (0xFFE0FC00, 0x4E001C00, FROM_GENERAL),
    (0xBFE0F400, 0x0E002400, TO_GENERAL),
    (0xBFE0FC00, 0x0E003C00, TO_GENERAL),
    # UZP, TRN, ZIP; TBL, TBX
    (0xFF208C00, 0x4E000800, PERMUTE),
    (0xFF208C00, 0x4E000000, PERMUTE),
    # scalars: FMADD; FMUL, FDIV, FSQRT; conversion and moves between register files; the others
    (0xDF000000, 0x1F000000, FMA_D),
    (0xDF20FC00, 0x1E200800, FMA_D),
    (0xDF20FC00, 0x1E201800, DIVIDE_D),
    (0xDF3FFC00, 0x1E21C000, DIVIDE_D),
    (0x5F26FC00, 0x1E220000, FROM_GENERAL),
    (0x5F27FC00, 0x1E270000, FROM_GENERAL),
    (0x5F20FC00, 0x1E200000, TO_GENERAL),
    (0xDF20C000, 0x1E204000, CONVERT_D),
    (0xDF200000, 0x1E200000, FLOAT_D),
    # scalars in a vector register
    (0xDF00B400, 0x5F001000, FMA_D),
    (0xDF00F400, 0x5F009000, FMA_D),
    (0xDF20FC00, 0x5E20CC00, FMA_D),
    (0xDF20FC00, 0x5E20DC00, FMA_D),
    (0xDF800400, 0x5F000400, SHIFT),
)
"""Of Advanced SIMD and floating point."""

MEMORY_ROWS: tuple[Row, ...] = (
    # pairs: 128 bits; other vector registers; general ones
    (0xFE400000, 0xAC400000, LOAD_2),
    (0xFE400000, 0xAC000000, STORE_2Q),
    (0x3E400000, 0x2C400000, LOAD),
    (0x3E400000, 0x2C000000, STORE_VECTOR),
    (0x3A400000, 0x28400000, LOAD),
    (0x3A400000, 0x28000000, STORE),
    # structures: LD1 of 4, 3, 2 and 1 registers; LD4, LD3, LD2; ST1 and the others; lanes
    (0xBF40F000, 0x0C402000, LOAD_4),
    (0xBF40F000, 0x0C400000, LOAD_4),
    (0xBF40F000, 0x0C406000, LOAD_3),
    (0xBF40F000, 0x0C404000, LOAD_3),
    (0xBF40F000, 0x0C40A000, LOAD_2),
    (0xBF40F000, 0x0C408000, LOAD_2),
    (0xBF40F000, 0x0C407000, LOAD),
    (0xBF40F000, 0x0C007000, STORE_VECTOR),
    (0xBF400000, 0x0C000000, STORE_2Q),
    (0xBF400000, 0x0D400000, LOAD_LANE),
    (0xBF400000, 0x0D000000, STORE_VECTOR),
    # one register: literal; 128 bits; other vector registers; PRFM; general ones
    (0x3B000000, 0x18000000, LOAD),
    (0xFFC00000, 0x3D800000, STORE_Q),
    (0xFFC00000, 0x3C800000, STORE_Q),
    (0x3E400000, 0x3C400000, LOAD),
    (0x3E400000, 0x3C000000, STORE_VECTOR),
    (0x3AC00000, 0x38000000, STORE),
    (0x3A000000, 0x38000000, LOAD),
    # exclusive and ordered
    (0x3F400000, 0x08000000, STORE),
    (0x3F400000, 0x08400000, LOAD),
)
"""Of loads and stores."""


@cache
def class_of(word: int) -> str:
    """Return the class of a 32-bit instruction.

    >>> class_of(0x4F9FE0D0)  # sdot v16.4s, v6.16b, v31.4b[0]
    'dot product'
    """
    group = word >> 25 & 0xF
    if group & 0b0101 == 0b0100:
        return next((name for mask, value, name in MEMORY_ROWS if word & mask == value), LOAD)
    if group & 0b0111 == 0b0111:
        return next((name for mask, value, name in VECTOR_ROWS if word & mask == value), VECTOR)
    if group & 0b1110 == 0b1010:
        return BRANCH
    return INTEGER_MULTIPLY if word & 0x1F000000 == 0x1B000000 else INTEGER

"""Instructions of XNNPACK's kernels and what surrounds them, as a disassembler names them."""

from __future__ import annotations

import pytest

from edgekit.compiler.evaluate.arm import instructions as a64

WORDS = [
    (0x4F87E205, "sdot v5.4s, v16.16b, v7.4b[0]", a64.DOT),
    (0x4F801218, "fmla v24.4s, v16.4s, v0.s[0]", a64.FMA_Q),
    (0x4FA01AD8, "fmla v24.4s, v22.4s, v0.s[3]", a64.FMA_Q),
    (0x4E20CC43, "fmla v3.4s, v2.4s, v0.4s", a64.FMA_Q),
    (0x6E21DC00, "fmul v0.4s, v0.4s, v1.4s", a64.FMA_Q),
    (0x1E200820, "fmul s0, s1, s0", a64.FMA_D),
    (0x4E24D462, "fadd v2.4s, v3.4s, v4.4s", a64.FLOAT_Q),
    (0x4E23F400, "fmax v0.4s, v0.4s, v3.4s", a64.FLOAT_Q),
    (0x0E21F400, "fmax v0.2s, v0.2s, v1.2s", a64.FLOAT_D),
    (0x1E611800, "fdiv d0, d0, d1", a64.DIVIDE_D),
    (0x4E21D800, "scvtf v0.4s, v0.4s", a64.CONVERT_Q),
    (0x4E21A800, "fcvtns v0.4s, v0.4s", a64.CONVERT_Q),
    (0x0E268051, "smlal v17.8h, v2.8b, v6.8b", a64.WIDENING),
    (0x0E20C091, "smull v17.8h, v4.8b, v0.8b", a64.WIDENING),
    (0x0E611042, "saddw v2.4s, v2.4s, v1.4h", a64.VECTOR),
    (0x4E606A30, "sadalp v16.4s, v17.8h", a64.SHIFT),
    (0x0F08A401, "sshll v1.8h, v0.8b, #0", a64.SHIFT),
    (0x4E614820, "sqxtn2 v0.8h, v1.4s", a64.SHIFT),
    (0x4E650C00, "sqadd v0.8h, v0.8h, v5.8h", a64.VECTOR),
    (0x4E216483, "smax v3.16b, v4.16b, v1.16b", a64.VECTOR),
    (0x6F00E401, "movi v1.2d, #0", a64.VECTOR),
    (0x4E411800, "uzp1 v0.8h, v0.8h, v1.8h", a64.PERMUTE),
    (0x4E040D43, "dup v3.4s, w10", a64.FROM_GENERAL),
    (0x4E061DE0, "mov v0.h[1], w15", a64.FROM_GENERAL),
    (0x9E670001, "fmov d1, x0", a64.FROM_GENERAL),
    (0x1E260008, "fmov w8, s0", a64.TO_GENERAL),
    (0x3DC00021, "ldr q1, [x1]", a64.LOAD),
    (0xF94002F7, "ldr x23, [x23]", a64.LOAD),
    (0x6D433FEE, "ldp d14, d15, [sp, #0x30]", a64.LOAD),
    (0xACC124A8, "ldp q8, q9, [x5], #0x20", a64.LOAD_2),
    (0x4C402D18, "ld1 {v24.2d, v25.2d, v26.2d, v27.2d}, [x8]", a64.LOAD_4),
    (0x4D40C840, "ld1r {v0.4s}, [x2]", a64.LOAD_LANE),
    (0xB9001822, "str w2, [x1, #0x18]", a64.STORE),
    (0xFD000808, "str d8, [x0, #0x10]", a64.STORE_VECTOR),
    (0x4C8C70C0, "st1 {v0.16b}, [x6], x12", a64.STORE_VECTOR),
    (0x3CB76943, "str q3, [x10, x23]", a64.STORE_Q),
    (0x3C818000, "stur q0, [x0, #0x18]", a64.STORE_Q),
    (0xAD000EC2, "stp q2, q3, [x22]", a64.STORE_2Q),
    (0x540000E1, "b.ne", a64.BRANCH),
    (0xD65F03C0, "ret", a64.BRANCH),
    (0x1100052A, "add w10, w9, #1", a64.INTEGER),
    (0x9B010801, "madd x1, x0, x1, x2", a64.INTEGER_MULTIPLY),
]


@pytest.mark.parametrize(("word", "written", "expected"), WORDS, ids=[row[1] for row in WORDS])
def test_classes(word: int, written: str, expected: str) -> None:
    assert a64.class_of(word) == expected

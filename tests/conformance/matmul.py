"""Gemm and MatMul in all their forms, Einsum, and attention as one op."""

from __future__ import annotations

from tests.conformance.case import Case

# C of Gemm [3,4]: name, shape
BIASES = [("row", "4"), ("full", "3,4"), ("column", "3,1"), ("scalar", ""), ("one", "1"), ("row_2d", "1,4")]

# name, a, b; `w` marks the constant operand
PRODUCTS = [
    ("2d", "3,5", "5,4"),
    ("vector_left", "5", "5,4"),
    ("vector_right", "3,5", "5"),
    ("dot", "5", "5"),
    ("batch", "2,3,5", "2,5,4"),
    ("batch_4d", "1,2,3,5", "1,2,5,4"),
    ("batch_left_only", "2,3,5", "5,4"),
    ("batch_right_only", "3,5", "2,5,4"),
    ("batch_broadcast", "2,1,3,5", "1,4,5,2"),
    ("batch_ranks_differ", "4,3,5", "2,1,5,2"),
    ("vector_left_batch", "5", "2,5,4"),
    ("vector_right_batch", "2,3,5", "5"),
    ("row", "1,5", "5,4"),
    ("inner_one", "3,1", "1,4"),
    ("square_ambiguous", "4,4,4", "4,4,4"),
    ("5d", "1,2,2,3,5", "1,2,2,5,4"),
]

EINSUMS = [
    ("matmul", "3,5", "5,4", "ij,jk->ik"),
    ("transposed", "3,5", "4,5", "ij,kj->ik"),
    ("batched", "2,3,5", "2,5,4", "bij,bjk->bik"),
    ("heads", "1,3,2,5", "1,4,2,5", "bqhd,bkhd->bhqk"),
    ("outer", "3", "4", "i,j->ij"),
    ("elementwise", "3,4", "3,4", "ij,ij->ij"),
    ("contract_all", "3,4", "3,4", "ij,ij->"),
]


def _typed(shape: str, name: str) -> str:
    return f"float[{shape}] {name}" if shape else f"float {name}"


def _gemm(name: str, attributes: str, a: str = "3,5", b: str = "5,4", c: str | None = "4") -> Case:
    weights = f"float[{b}] b" + ("" if c is None else f", {_typed(c, 'c')}")
    return Case(
        f"gemm_{name}", f"float[{a}] a", f"y = Gemm{attributes}(a, b{'' if c is None else ', c'})", weights
    )


CASES = [
    _gemm("defaults", ""),
    _gemm("no_bias", "", c=None),
    _gemm("trans_b", "<transB=1>", b="4,5"),
    _gemm("trans_a", "<transA=1>", a="5,3"),
    _gemm("trans_both", "<transA=1, transB=1>", a="5,3", b="4,5"),
    _gemm("alpha", "<alpha=0.5>"),
    _gemm("beta", "<beta=0.3>"),
    _gemm("beta_zero", "<beta=0.0>"),
    _gemm("alpha_beta_trans_b", "<alpha=1.5, beta=-2.0, transB=1>", b="4,5"),
    _gemm("alpha_no_bias", "<alpha=-0.7, transB=1>", b="4,5", c=None),
    _gemm("one_row", "<transB=1>", a="1,5", b="4,5"),
    _gemm("one_column", "<transB=1>", b="1,5", c="1"),
    *(_gemm(f"bias_{n}", "<transB=1>", b="4,5", c=shape) for n, shape in BIASES),
    Case("gemm_bias_is_input", "float[3,5] a, float[3,4] c", "y = Gemm(a, b, c)", "float[5,4] b"),
    Case("gemm_const_left", "float[5,4] b", "y = Gemm(a, b, c)", "float[3,5] a, float[4] c"),
    Case("gemm_relu", "float[3,5] a", "g = Gemm<transB=1>(a, b, c)\ny = Relu(g)", "float[4,5] b, float[4] c"),
    Case(
        "gemm_batchnorm",
        "float[3,5] a",
        "g = Gemm<transB=1>(a, b, c)\ny = BatchNormalization(g, s, t, m, var)",
        "float[4,5] b, float[4] c, float[4] s, float[4] t, float[4] m, float[4] var",
        ranges={"var": (0.5, 2.0)},
    ),
    Case(
        "gemm_twice",
        "float[3,5] a",
        "g = Gemm<transB=1>(a, b, c)\nr = Relu(g)\ny = Gemm(r, d)",
        "float[4,5] b, float[4] c, float[4,2] d",
    ),
    *(Case(f"matmul_{n}", f"float[{a}] a, float[{b}] b", "y = MatMul(a, b)") for n, a, b in PRODUCTS),
    *(
        Case(f"matmul_const_right_{n}", f"float[{a}] a", "y = MatMul(a, b)", f"float[{b}] b")
        for n, a, b in PRODUCTS
    ),
    *(
        Case(f"matmul_const_left_{n}", f"float[{b}] b", "y = MatMul(a, b)", f"float[{a}] a")
        for n, a, b in PRODUCTS
    ),
    Case("matmul_bias", "float[2,3,5] a", "m = MatMul(a, b)\ny = Add(m, c)", "float[5,4] b, float[4] c"),
    Case("matmul_bias_left", "float[2,3,5] a", "m = MatMul(a, b)\ny = Add(c, m)", "float[5,4] b, float[4] c"),
    Case(
        "matmul_bias_full",
        "float[2,3,5] a",
        "m = MatMul(a, b)\ny = Add(m, c)",
        "float[5,4] b, float[2,3,4] c",
    ),
    Case(
        "matmul_bias_relu",
        "float[2,3,5] a",
        "m = MatMul(a, b)\nc0 = Add(m, c)\ny = Relu(c0)",
        "float[5,4] b, float[4] c",
    ),
    Case(
        "matmul_transposed_right",
        "float[2,3,5] a, float[2,4,5] b",
        "t = Transpose<perm=[0,2,1]>(b)\ny = MatMul(a, t)",
    ),
    Case(
        "matmul_transposed_left",
        "float[2,5,3] a, float[2,5,4] b",
        "t = Transpose<perm=[0,2,1]>(a)\ny = MatMul(t, b)",
    ),
    Case(
        "matmul_transposed_both",
        "float[2,5,3] a, float[2,4,5] b",
        "s = Transpose<perm=[0,2,1]>(a)\nt = Transpose<perm=[0,2,1]>(b)\ny = MatMul(s, t)",
    ),
    Case(
        "matmul_transposed_after",
        "float[2,3,5] a, float[2,5,4] b",
        "m = MatMul(a, b)\ny = Transpose<perm=[0,2,1]>(m)",
    ),
    Case(
        "matmul_const_transposed_input",
        "float[2,5,3] a",
        "t = Transpose<perm=[0,2,1]>(a)\ny = MatMul(t, b)",
        "float[5,4] b",
    ),
    Case("matmul_itself", "float[4,4] a", "y = MatMul(a, a)"),
    Case("matmul_int32", "int32[3,5] a, int32[5,4] b", "y = MatMul(a, b)"),
    *(
        Case(f"einsum_{n}", f"float[{a}] a, float[{b}] b", f'y = Einsum<equation="{e}">(a, b)')
        for n, a, b, e in EINSUMS
    ),
    Case("einsum_const", "float[1,3,8] a", 'y = Einsum<equation="bsd,dhk->bhsk">(a, w)', "float[8,2,4] w"),
    Case("einsum_transpose", "float[2,3,4] a", 'y = Einsum<equation="ijk->kij">(a)'),
    Case("einsum_sum", "float[2,3,4] a", 'y = Einsum<equation="ijk->ik">(a)'),
]

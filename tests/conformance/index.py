"""Ops that pick by index: Gather and its kin, and Scatter."""

from __future__ import annotations

from tests.conformance.case import Case

GATHERS = [
    ("axis0", "5,3", "int64[2] i = {3,0}", ""),
    ("axis1", "2,5,3", "int64[3] i = {4,0,4}", "<axis=1>"),
    ("negative_index", "5,3", "int64[3] i = {-1,0,-5}", ""),
    ("negative_axis", "2,5,3", "int64[2] i = {2,1}", "<axis=-1>"),
    ("scalar", "2,5,3", "int64 i = {3}", "<axis=1>"),
    ("scalar_negative", "2,5,3", "int64 i = {-2}", "<axis=1>"),
    ("matrix", "5,3", "int64[2,2] i = {0,1,4,2}", ""),
    ("int32_index", "5,3", "int32[2] i = {3,0}", ""),
    ("channel_4d", "1,5,3,3", "int64[5] i = {4,2,0,1,3}", "<axis=1>"),
    ("one", "2,5,3", "int64[1] i = {3}", "<axis=1>"),
    ("last_4d_scalar", "1,4,3,5", "int64 i = {0}", "<axis=3>"),
]

CASES = [
    *(Case(f"gather_{n}", f"float[{x}] x", f"y = Gather{a}(x, i)", i) for n, x, i, a in GATHERS),
    Case("gather_index_is_input", "float[5,3] x, int64[2,2] i", "y = Gather(x, i)", ranges={"i": (0, 5)}),
    Case(
        "gather_negative_index_is_input",
        "float[5,3] x, int64[4] i",
        "y = Gather(x, i)",
        ranges={"i": (-5, 5)},
    ),
    Case(
        "gather_embedding", "int64[1,7] i", "y = Gather(table, i)", "float[11,4] table", ranges={"i": (0, 11)}
    ),
    Case("gather_int64", "int64[5,3] x", "y = Gather(x, i)", "int64[2] i = {4,1}"),
    Case("gather_nd_bool", "bool[3,4] x", "y = GatherND(x, i)", "int64[3,2] i = {0,1,2,3,-1,-2}"),
]

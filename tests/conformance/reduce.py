"""Reductions, softmaxes, arg-reductions, TopK and CumSum."""

from __future__ import annotations

from tests.conformance.case import Case, Range

REDUCTIONS = ["Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
RANGES: dict[str, dict[str, Range]] = {"LogSum": {"x": (0.2, 2.0)}, "Prod": {"x": (0.5, 1.5)}}

# name, input shape, axes (None: absent), attributes
FORMS: list[tuple[str, str, str | None, str]] = [
    ("all", "2,3,4,5", None, ""),
    ("all_keepdims0", "2,3,4,5", None, "<keepdims=0>"),
    ("last", "2,3,4,5", "-1", ""),
    ("last_keepdims0", "2,3,4,5", "-1", "<keepdims=0>"),
    ("channel", "1,3,4,5", "1", ""),
    ("channel_keepdims0", "1,3,4,5", "1", "<keepdims=0>"),
    ("spatial", "1,3,4,5", "2,3", ""),
    ("spatial_keepdims0", "1,3,4,5", "2,3", "<keepdims=0>"),
    ("spatial_negative_reversed", "2,3,4,5", "-1,-2", "<keepdims=1>"),
    ("apart", "2,3,4,5", "0,2", "<keepdims=0>"),
    ("no_axes_is_noop", "2,3,4,5", None, "<noop_with_empty_axes=1>"),
    ("3d", "2,4,5", "1", "<keepdims=0>"),
    ("2d", "4,5", "0", ""),
    ("1d", "7", "0", "<keepdims=0>"),
    ("5d", "2,2,3,2,3", "1,-1", ""),
]
BRIEF = {"all", "last_keepdims0", "spatial", "apart", "no_axes_is_noop"}

AXES = [
    ("2d", "3,5"),
    ("3d", "2,3,5"),
    ("4d", "2,3,4,5"),
    ("4d_n_is_c", "3,3,3,3"),
    ("5d", "2,2,3,2,3"),
    ("1d", "6"),
]


def _reduction(op: str, name: str, shape: str, axes: str | None, attributes: str) -> Case:
    count = 0 if axes is None else len(axes.split(","))
    return Case(
        f"reduce_{op.lower()}_{name}",
        f"float[{shape}] x",
        f"y = Reduce{op}{attributes}(x{'' if axes is None else ', axes'})",
        "" if axes is None else f"int64[{count}] axes = {{{axes}}}",
        ranges=RANGES.get(op, {}),
    )


CASES = [
    *(
        _reduction(op, *form)
        for op in REDUCTIONS
        for form in FORMS
        if op in ("Mean", "Sum", "Max") or form[0] in BRIEF
    ),
    *(
        Case(
            f"reduce_{op.lower()}_int32",
            "int32[2,3,4] x",
            f"y = Reduce{op}<keepdims=0>(x, axes)",
            "int64[1] axes = {1}",
        )
        for op in ("Sum", "Max", "Min", "Prod")
    ),
    *(
        Case(
            f"reduce_{op.lower()}_int64", "int64[2,3,4] x", f"y = Reduce{op}(x, axes)", "int64[1] axes = {-1}"
        )
        for op in ("Sum", "Max", "Min")
    ),
    *(
        Case(f"{op.lower()}_{name}_axis{axis}", f"float[{shape}] x", f"y = {op}<axis={axis}>(x)")
        for op in ("Softmax", "LogSoftmax")
        for name, shape in AXES
        for axis in range(-1, len(shape.split(",")) if op == "Softmax" else 2)
        if axis < len(shape.split(","))
    ),
    *(
        Case(f"{op.lower()}_default", "float[2,3,4] x", f"y = {op}(x)")
        for op in ("Softmax", "LogSoftmax", "Hardmax")
    ),
    Case("softmax_large_values", "float[2,9] x", "y = Softmax<axis=1>(x)", ranges={"x": (-80, 80)}),
    *(
        Case(f"{op.lower()}_{name}", f"float[{shape}] x", f"y = {op}{attributes}(x)")
        for op in ("ArgMax", "ArgMin")
        for name, shape, attributes in (
            ("default", "3,4,5", ""),
            ("axis1", "1,3,4,5", "<axis=1>"),
            ("axis1_keepdims0", "1,3,4,5", "<axis=1, keepdims=0>"),
            ("last_keepdims0", "2,3,5", "<axis=-1, keepdims=0>"),
            ("axis2", "2,3,4,5", "<axis=2, keepdims=0>"),
            ("1d", "9", "<axis=0, keepdims=0>"),
        )
    ),
    Case("argmax_ties_first", "int32[4,9] x", "y = ArgMax<axis=1>(x)", ranges={"x": (0, 3)}),
    Case(
        "argmax_ties_last", "int32[4,9] x", "y = ArgMax<axis=1, select_last_index=1>(x)", ranges={"x": (0, 3)}
    ),
    Case("argmax_ties_float", "float[4,9] x", "r = Floor(x)\ny = ArgMax<axis=1>(r)", ranges={"x": (0, 3)}),
    Case("argmin_ties_float", "float[4,9] x", "r = Floor(x)\ny = ArgMin<axis=1>(r)", ranges={"x": (0, 3)}),
    *(
        Case(
            f"topk_{name}",
            f"float[{shape}] x",
            f"y, i = TopK{attributes}(x, k)",
            f"int64[1] k = {{{k}}}",
            outputs="y, i",
        )
        for name, shape, k, attributes in (
            ("default", "2,9", 3, ""),
            ("axis1", "2,9,3", 4, "<axis=1>"),
            ("axis0", "9,2", 2, "<axis=0>"),
            ("smallest", "2,9", 3, "<largest=0>"),
            ("all", "2,5", 5, "<sorted=1>"),
            ("one", "2,3,5", 1, ""),
            ("4d_channel", "1,8,3,3", 3, "<axis=1>"),
        )
    ),
    Case("topk_values_only", "float[2,9] x", "y, i = TopK(x, k)", "int64[1] k = {3}"),
    *(
        Case(
            f"cumsum_{name}",
            f"float[{shape}] x",
            f"y = CumSum{attributes}(x, axis)",
            f"int64 axis = {{{axis}}}",
        )
        for name, shape, axis, attributes in (
            ("1d", "7", 0, ""),
            ("axis1", "2,5,3", 1, ""),
            ("negative_axis", "2,5,3", -1, ""),
            ("exclusive", "2,5", 1, "<exclusive=1>"),
            ("reverse", "2,5", 1, "<reverse=1>"),
            ("both", "2,5", 1, "<exclusive=1, reverse=1>"),
            ("4d_channel", "1,4,3,3", 1, ""),
        )
    ),
    Case("cumsum_int64", "int64[2,5] x", "y = CumSum(x, axis)", "int64 axis = {1}"),
    Case(
        "reduce_empty_axes_noop",
        "float[2,3] x",
        "y = ReduceSum<noop_with_empty_axes=1>(x, axes)",
        "int64[0] axes = {}",
    ),
    Case("reduce_empty_axes_all", "float[2,3] x", "y = ReduceSum(x, axes)", "int64[0] axes = {}"),
]

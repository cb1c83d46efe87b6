"""Ops that move data without changing it: reshape, transpose, concat, split, slice, pad, gather, tile ..."""

from __future__ import annotations

from itertools import permutations

from tests.conformance.case import Case


def _ints(name: str, values: str) -> str:
    return f"int64[{len(values.split(',')) if values else 0}] {name} = {{{values}}}"


RESHAPES = [
    ("flat", "2,3,4", "24", ""),
    ("minus_one", "2,3,4", "2,-1", ""),
    ("zero_copies", "2,3,4", "0,-1", ""),
    ("zeros_copy", "2,3,4,5", "0,0,-1", ""),
    ("split_last", "2,3,8", "2,3,2,4", ""),
    ("merge_middle", "2,3,4,5", "2,12,5", ""),
    ("across", "2,3,4", "4,6", ""),
    ("add_ones", "2,3", "1,2,1,3", ""),
    ("drop_ones", "1,2,1,3", "2,3", ""),
    ("same", "2,3", "2,3", ""),
    ("allowzero", "2,3,4", "2,12", "<allowzero=1>"),
    ("5d", "1,8,3,3", "1,2,4,3,3", ""),
    ("6d", "1,8,4,4", "1,2,2,2,4,4", ""),
    ("from_1d", "12", "3,4", ""),
    ("to_scalar_like", "1,1", "1", ""),
]

SLICES = [
    ("plain", "1,4,6,6", "1,2", "3,5", "1,2", ""),
    ("no_axes", "4,5", "1,0", "3,4", None, ""),
    ("negative_start", "4,6", "-3", "6", "1", ""),
    ("negative_end", "4,6", "0", "-2", "1", ""),
    ("end_beyond", "4,6", "2", "9223372036854775807", "1", ""),
    ("start_below", "4,6", "-100", "3", "1", ""),
    ("step2", "1,3,8,8", "0,0", "8,8", "2,3", "2,2"),
    ("step2_offset", "1,3,8,8", "1,1", "8,8", "2,3", "2,2"),
    ("step3_uneven", "10", "1", "9", "0", "3"),
    ("reverse", "4,6", "-1", "-9223372036854775807", "1", "-1"),
    ("reverse_part", "9", "7", "1", "0", "-2"),
    ("reverse_channel", "1,3,4,4", "-1", "-4", "1", "-1"),
    ("negative_axis", "2,3,4", "1", "3", "-1", ""),
    ("axes_unordered", "2,5,6", "1,0", "4,3", "2,1", ""),
    ("5d", "1,2,3,4,5", "0,1", "2,4", "2,4", "1,2"),
    ("whole", "3,4", "0", "4", "1", ""),
    ("channel_half", "1,8,3,3", "4", "8", "1", ""),
    ("batch", "4,2,3,3", "1", "3", "0", ""),
]

PADS = [
    ("spatial", "1,2,3,4", "0,0,1,2,0,0,2,1", "", "constant"),
    ("value", "1,2,3,4", "0,0,1,2,0,0,2,1", "value", "constant"),
    ("channel", "1,2,3,4", "0,1,0,0,0,2,0,0", "value", "constant"),
    ("batch", "1,2,3,4", "1,0,0,0,0,0,0,0", "", "constant"),
    ("negative", "1,2,5,6", "0,0,-1,-2,0,0,-1,0", "", "constant"),
    ("negative_and_positive", "1,2,5,6", "0,0,-1,2,0,0,1,-3", "value", "constant"),
    ("none", "2,3", "0,0,0,0", "", "constant"),
    ("1d", "5", "2,1", "value", "constant"),
    ("2d", "3,4", "1,0,0,2", "", "constant"),
    ("3d", "2,3,4", "0,1,1,0,1,0", "", "constant"),
    ("5d", "1,2,3,2,3", "0,0,1,0,1,0,0,1,0,1", "", "constant"),
    ("reflect", "1,2,4,5", "0,0,1,2,0,0,2,1", "", "reflect"),
    ("reflect_one_side", "1,2,4,5", "0,0,0,3,0,0,0,0", "", "reflect"),
    ("reflect_1d", "6", "3,5", "", "reflect"),
    ("edge", "1,2,4,5", "0,0,1,2,0,0,2,1", "", "edge"),
    ("edge_far", "1,2,2,3", "0,0,4,0,0,0,0,5", "", "edge"),
    ("wrap", "1,2,4,5", "0,0,1,2,0,0,2,1", "", "wrap"),
    ("reflect_negative", "1,2,6,5", "0,0,-1,2,0,0,2,0", "", "reflect"),
]

CASES = [
    *(
        Case(f"reshape_{n}", f"float[{x}] x", f"y = Reshape{a}(x, s)", _ints("s", s))
        for n, x, s, a in RESHAPES
    ),
    Case("reshape_int64", "int64[2,6] x", "y = Reshape(x, s)", "int64[2] s = {3,4}"),
    Case("reshape_bool", "bool[2,6] x", "y = Reshape(x, s)", "int64[2] s = {3,4}"),
    Case(
        "reshape_shape_computed",
        "float[2,3,4] x",
        "s = Shape<start=0, end=1>(x)\nk = Concat<axis=0>(s, m)\ny = Reshape(x, k)",
        "int64[1] m = {-1}",
    ),
    *(
        Case(f"flatten_axis{axis}", "float[2,3,4,5] x", f"y = Flatten<axis={axis}>(x)")
        for axis in (-4, -3, -2, -1, 0, 1, 2, 3, 4)
    ),
    Case("flatten_default", "float[2,3,4,5] x", "y = Flatten(x)"),
    *(
        Case(
            f"squeeze_{n}", f"float[{x}] x", f"y = Squeeze(x{', a' if a else ''})", _ints("a", a) if a else ""
        )
        for n, x, a in (
            ("all", "1,3,1,5", ""),
            ("one", "1,3,1,5", "2"),
            ("negative", "1,3,1,5", "-2"),
            ("two", "1,3,4,1", "0,3"),
            ("spatial", "2,3,1,1", "2,3"),
        )
    ),
    *(
        Case(f"unsqueeze_{n}", f"float[{x}] x", "y = Unsqueeze(x, a)", _ints("a", a))
        for n, x, a in (
            ("first", "3,5", "0"),
            ("last", "3,5", "-1"),
            ("two", "3,5", "0,3"),
            ("unordered", "3,5", "2,0"),
            ("negative", "3,5", "-2"),
            ("four", "4", "0,2,3"),
        )
    ),
    *(
        Case(
            f"transpose_{''.join(map(str, p))}",
            f"float[{','.join('2345'[:rank])}] x",
            f"y = Transpose<perm=[{','.join(map(str, p))}]>(x)",
        )
        for rank in (2, 3, 4)
        for p in permutations(range(rank))
    ),
    Case("transpose_default", "float[2,3,4] x", "y = Transpose(x)"),
    Case("transpose_equal_sizes", "float[3,3,3,3] x", "y = Transpose<perm=[0,3,1,2]>(x)"),
    Case("transpose_5d", "float[1,2,3,4,5] x", "y = Transpose<perm=[0,2,1,4,3]>(x)"),
    Case("transpose_6d", "float[1,2,2,3,2,3] x", "y = Transpose<perm=[0,1,4,2,5,3]>(x)"),
    Case("transpose_int64", "int64[2,3,4] x", "y = Transpose<perm=[2,0,1]>(x)"),
    Case("transpose_bool", "bool[2,3,4] x", "y = Transpose<perm=[2,0,1]>(x)"),
    Case(
        "transpose_twice", "float[2,3,4] x", "t = Transpose<perm=[2,0,1]>(x)\ny = Transpose<perm=[1,2,0]>(t)"
    ),
    *(
        Case(
            f"concat_{n}",
            ", ".join(f"float[{s}] x{i}" for i, s in enumerate(shapes)),
            f"y = Concat<axis={axis}>({', '.join(f'x{i}' for i in range(len(shapes)))})",
        )
        for n, shapes, axis in (
            ("channel", ("1,2,4,4", "1,3,4,4"), 1),
            ("batch", ("1,2,4", "3,2,4"), 0),
            ("last", ("2,3,4", "2,3,1"), -1),
            ("height", ("1,2,3,4", "1,2,2,4"), 2),
            ("one", ("2,3",), 0),
            ("four", ("1,2", "1,3", "1,1", "1,4"), 1),
            ("six", ("2,1",) * 6, 1),
            ("negative", ("2,3,4", "2,1,4"), -2),
            ("5d", ("1,2,3,2,2", "1,2,1,2,2"), 2),
        )
    ),
    Case("concat_twice_the_same", "float[1,2,3,3] x", "y = Concat<axis=1>(x, x)"),
    Case("concat_constant", "float[2,3] x", "y = Concat<axis=0>(k, x)", "float[1,3] k"),
    Case("concat_int64", "int64[2,3] a, int64[2,2] b", "y = Concat<axis=1>(a, b)"),
    *(
        Case(
            f"split_{n}",
            f"float[{x}] x",
            f"{out} = Split<{a}>(x{', s' if s else ''})",
            _ints("s", s) if s else "",
            outputs=out,
        )
        for n, x, s, a, out in (
            ("equal", "1,6,4,4", "3,3", "axis=1", "y, z"),
            ("num_outputs", "1,6,4,4", "", "axis=1, num_outputs=3", "y, z, u"),
            ("num_outputs_uneven", "7,2", "", "axis=0, num_outputs=3", "y, z, u"),
            ("uneven", "1,6,4,4", "1,2,3", "axis=1", "y, z, u"),
            ("last", "2,3,8", "2,6", "axis=-1", "y, z"),
            ("spatial", "1,2,6,4", "2,2,2", "axis=2", "y, z, u"),
            ("one", "2,4", "4", "axis=1", "y"),
            ("five_equal", "2,10", "2,2,2,2,2", "axis=1", "a, b, c, d, e"),
            ("zero_size_part", "2,4", "4,0", "axis=1", "y, z"),
        )
    ),
    Case("split_default_axis", "float[4,3] x", "y, z = Split<num_outputs=2>(x)", outputs="y, z"),
    Case("split_one_part_used", "float[1,6,4,4] x", "a, b, c = Split<axis=1, num_outputs=3>(x)\ny = Relu(b)"),
    *(
        Case(
            f"slice_{n}",
            f"float[{x}] x",
            f"y = Slice(x, b, e{', a' if a else (', ' if t else '')}{', t' if t else ''})",
            ", ".join(
                [
                    _ints("b", b),
                    _ints("e", e),
                    *([_ints("a", a)] if a else []),
                    *([_ints("t", t)] if t else []),
                ]
            ),
        )
        for n, x, b, e, a, t in SLICES
    ),
    Case(
        "slice_empty",
        "float[4,3] x",
        "e = Slice(x, b, b, a)\ny = Concat<axis=0>(x, e)",
        "int64[1] b = {2}, int64[1] a = {0}",
    ),
    Case(
        "slice_int32",
        "int32[4,6] x",
        "y = Slice(x, b, e, a)",
        "int64[1] b = {1}, int64[1] e = {4}, int64[1] a = {1}",
    ),
    *(
        Case(
            f"pad_{n}",
            f"float[{x}] x",
            f'y = Pad<mode="{mode}">(x, p{", v" if v else ""})',
            _ints("p", p) + (", float v = {1.5}" if v else ""),
        )
        for n, x, p, v, mode in PADS
    ),
    Case("pad_default_mode", "float[2,3] x", "y = Pad(x, p)", "int64[4] p = {1,0,0,1}"),
    Case(
        "pad_axes_reflect",
        "float[1,2,3,4] x",
        'y = Pad<mode="reflect">(x, p, , a)',
        "int64[2] p = {2,1}, int64[1] a = {3}",
    ),
    *(Case(f"pad_{t}", f"{t}[2,3] x", "y = Pad(x, p)", "int64[4] p = {1,0,0,1}") for t in ("int32", "int64")),
    *(
        Case(f"expand_{n}", f"float[{x}] x" if x else "float x", "y = Expand(x, s)", _ints("s", s))
        for n, x, s in (
            ("channel", "1,3,1,1", "1,3,4,5"),
            ("rank_grows", "3,1", "2,3,4"),
            ("ones_keep", "2,3,4", "1,1,1"),
            ("scalar", "", "2,3"),
            ("shorter", "2,3,4", "4"),
            ("both", "1,4", "3,1"),
            ("5d", "1,1,2,1,3", "2,1,2,4,3"),
        )
    ),
    Case("expand_int64", "int64[1,3] x", "y = Expand(x, s)", "int64[2] s = {2,3}"),
    Case("expand_bool", "bool[1,3] x", "y = Expand(x, s)", "int64[2] s = {2,3}"),
    *(
        Case(f"tile_{n}", f"float[{x}] x", "y = Tile(x, r)", _ints("r", r))
        for n, x, r in (
            ("one_axis", "2,3", "1,2"),
            ("all", "2,3", "2,3"),
            ("none", "2,3", "1,1"),
            ("4d", "1,2,3,2", "1,2,1,3"),
            ("1d", "4", "3"),
            ("5d", "1,1,2,2,2", "1,2,1,2,1"),
        )
    ),
    Case("tile_int64", "int64[2,3] x", "y = Tile(x, r)", "int64[2] r = {2,1}"),
    *(
        Case(f"depth_to_space_{n}", f"float[{x}] x", f"y = DepthToSpace<{a}>(x)")
        for n, x, a in (
            ("default", "1,8,3,4", "blocksize=2"),
            ("dcr", "1,8,3,4", 'blocksize=2, mode="DCR"'),
            ("crd", "1,8,3,4", 'blocksize=2, mode="CRD"'),
            ("dcr_3", "2,9,2,3", "blocksize=3"),
            ("crd_3", "2,18,2,3", 'blocksize=3, mode="CRD"'),
            ("crd_one_channel", "1,4,3,3", 'blocksize=2, mode="CRD"'),
        )
    ),
    *(
        Case(f"space_to_depth_{b}", f"float[{x}] x", f"y = SpaceToDepth<blocksize={b}>(x)")
        for b, x in ((2, "1,3,4,6"), (3, "2,2,6,3"))
    ),
    *(
        Case(f"identity_{t}", f"{t}[2,3] x", "y = Identity(x)")
        for t in ("float", "int32", "int64", "bool", "uint8", "int8", "float16", "double")
    ),
    Case("identity_scalar", "float x", "y = Identity(x)"),
    Case("identity_between", "float[2,3] x", "i = Identity(x)\nr = Relu(i)\ny = Identity(r)"),
    Case("input_is_output_too", "float[2,3] x", "y = Relu(x)\nz = Identity(x)", outputs="y, z"),
    Case("output_of_constant", "float[2,3] x", "y = Relu(x)\nz = Identity(k)", "float[2] k", outputs="y, z"),
    Case("output_is_used_inside", "float[2,3] x", "y = Relu(x)\nz = Neg(y)", outputs="y, z"),
    Case("dropout", "float[2,3] x", "y = Dropout(x)"),
    Case("dropout_ratio", "float[2,3] x", "d = Dropout(x, r)\ny = Relu(d)", "float r = {0.9}"),
    Case("dropout_mask", "float[2,3] x", "y, m = Dropout(x, r)", "float r = {0.9}", outputs="y, m"),
    Case("dropout_not_training", "float[2,3] x", "y = Dropout(x, r, t)", "float r = {0.9}, bool t = {0}"),
    Case("constant_node", "float[2,3] x", "k = Constant<value = float[3] {1.0, 2.0, 3.0}>()\ny = Add(x, k)"),
    Case("constant_floats", "float[2,3] x", "k = Constant<value_floats = [1.0, 2.0, 3.0]>()\ny = Mul(x, k)"),
    Case(
        "non_zero_folded",
        "float[2,3] x",
        "i = NonZero(k)\nt = Transpose(i)\ny = GatherND(x, t)",
        "float[2,3] k = {0.0, 1.0, 0.0, 1.0, 0.0, 0.0}",
        outputs="float[2] y",
    ),
]

"""Pooling: MaxPool, AveragePool, LpPool and the global forms."""

from __future__ import annotations

from tests.conformance.case import Case

# name, input, attributes that both MaxPool and AveragePool know
SHARED = [
    ("2x2_stride2", "1,3,8,8", "kernel_shape=[2,2], strides=[2,2]"),
    ("2x2_stride2_odd", "1,3,9,7", "kernel_shape=[2,2], strides=[2,2]"),
    ("2x2_stride2_odd_ceil", "1,3,9,7", "kernel_shape=[2,2], strides=[2,2], ceil_mode=1"),
    ("default_strides", "1,3,7,7", "kernel_shape=[3,3]"),
    ("3x3_same", "1,3,7,7", "kernel_shape=[3,3], pads=[1,1,1,1]"),
    ("3x3_stride2_even", "1,3,8,8", "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]"),
    ("3x3_stride2_odd", "1,3,9,9", "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]"),
    ("3x3_stride2_ceil", "1,3,8,8", "kernel_shape=[3,3], strides=[2,2], ceil_mode=1"),
    ("3x3_stride2_pads_ceil", "1,3,8,8", "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1"),
    ("3x3_stride3_ceil", "1,3,8,7", "kernel_shape=[3,3], strides=[3,3], ceil_mode=1"),
    (
        "3x3_stride2_begin_pads_ceil",
        "1,3,7,7",
        "kernel_shape=[3,3], strides=[2,2], pads=[1,1,0,0], ceil_mode=1",
    ),
    ("pads_differ", "1,3,8,8", "kernel_shape=[3,3], strides=[2,2], pads=[0,1,1,0]"),
    ("pads_all_differ", "1,3,8,8", "kernel_shape=[4,4], pads=[0,1,2,3]"),
    ("kernel_differs", "1,3,8,9", "kernel_shape=[2,5], strides=[1,3], pads=[1,2,0,2]"),
    ("5x5_same", "1,4,6,6", "kernel_shape=[5,5], pads=[2,2,2,2]"),
    ("1x1_stride2", "1,3,7,7", "kernel_shape=[1,1], strides=[2,2]"),
    ("2x2_stride3_gap", "1,3,9,9", "kernel_shape=[2,2], strides=[3,3]"),
    ("same_upper_stride1", "1,3,7,8", 'kernel_shape=[3,2], auto_pad="SAME_UPPER"'),
    ("same_upper_stride2", "1,3,7,8", 'kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER"'),
    ("same_lower_stride1", "1,3,7,8", 'kernel_shape=[3,2], auto_pad="SAME_LOWER"'),
    ("same_lower_stride2", "1,3,7,8", 'kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_LOWER"'),
    ("valid", "1,3,7,8", 'kernel_shape=[3,3], strides=[2,2], auto_pad="VALID"'),
    ("kernel_is_image", "1,3,6,5", "kernel_shape=[6,5]"),
    ("batch_is_channels", "4,4,4,4", "kernel_shape=[2,2], strides=[2,2]"),
    ("dilation2", "1,3,9,9", "kernel_shape=[3,3], dilations=[2,2]"),
    (
        "dilation2_pads_stride2",
        "1,3,9,9",
        "kernel_shape=[3,3], dilations=[2,2], strides=[2,2], pads=[1,1,1,1]",
    ),
    ("1d", "1,3,9", "kernel_shape=[3], strides=[2], pads=[1,1]"),
    ("1d_ceil", "2,3,10", "kernel_shape=[3], strides=[2], ceil_mode=1"),
    ("3d", "1,2,4,6,5", "kernel_shape=[2,2,2], strides=[2,2,2]"),
    ("3d_pads", "1,2,4,6,5", "kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]"),
]


def _pool(op: str, name: str, shape: str, attributes: str, **more: tuple[float, float]) -> Case:
    return Case(name, f"float[{shape}] x", f"y = {op}<{attributes}>(x)", ranges=more)


CASES = [
    # All-negative values show a pad that is taken as 0.
    *(_pool("MaxPool", f"max_pool_{n}", shape, a, x=(-3.0, -1.0)) for n, shape, a in SHARED),
    *(_pool("AveragePool", f"average_pool_{n}", shape, a) for n, shape, a in SHARED),
    *(
        _pool("AveragePool", f"average_pool_{n}_include_pad", shape, f"{a}, count_include_pad=1")
        for n, shape, a in SHARED
        if "pads" in a or "ceil" in a or "SAME" in a
    ),
    _pool(
        "MaxPool", "max_pool_storage_order", "1,3,8,8", "kernel_shape=[2,2], strides=[2,2], storage_order=1"
    ),
    Case(
        "max_pool_after_relu",
        "float[1,3,8,8] x",
        "r = Relu(x)\ny = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r)",
    ),
    Case(
        "max_pool_int8",
        "int8[1,3,6,6] x",
        "y = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
        ranges={"x": (-128, 0)},
    ),
    *(
        Case(f"{name}_{label}", f"float[{shape}] x", f"y = {op}(x)")
        for name, op in (("global_average_pool", "GlobalAveragePool"), ("global_max_pool", "GlobalMaxPool"))
        for label, shape in (
            ("2d", "1,4,5,6"),
            ("1d", "1,4,7"),
            ("3d", "1,2,3,4,5"),
            ("batch2", "2,4,5,5"),
            ("1x1", "1,4,1,1"),
        )
    ),
    Case(
        "global_average_pool_then_conv",
        "float[1,4,5,5] x",
        "g = GlobalAveragePool(x)\ny = Conv(g, w)",
        "float[3,4,1,1] w",
    ),
    Case(
        "conv_then_average_pool",
        "float[1,3,8,8] x",
        "c = Conv<pads=[1,1,1,1]>(x, w)\nr = Relu(c)\ny = AveragePool<kernel_shape=[2,2], strides=[2,2]>(r)",
        "float[4,3,3,3] w",
    ),
]

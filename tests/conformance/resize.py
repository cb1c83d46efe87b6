"""Resize: every mode, coordinate transformation, rounding and way of giving the size."""

from __future__ import annotations

from tests.conformance.case import Case

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
IMAGE = "float[1,2,4,6] x"

# name, scales of the whole tensor
SCALES = {
    "up2": "1.0, 1.0, 2.0, 2.0",
    "up3_2": "1.0, 1.0, 3.0, 2.0",
    "half": "1.0, 1.0, 0.5, 0.5",
    "odd": "1.0, 1.0, 1.7, 0.6",
}


def _scaled(name: str, attributes: str, scales: str, image: str = IMAGE) -> Case:
    return Case(
        name, image, f"y = Resize<{attributes}>(x, , k)", f"float[{scales.count(',') + 1}] k = {{{scales}}}"
    )


def _sized(name: str, attributes: str, sizes: str, image: str = IMAGE) -> Case:
    return Case(
        name, image, f"y = Resize<{attributes}>(x, , , k)", f"int64[{sizes.count(',') + 1}] k = {{{sizes}}}"
    )


CASES = [
    *(
        _scaled(
            f"nearest_{c}_{r}_{n}",
            f'mode="nearest", coordinate_transformation_mode="{c}", nearest_mode="{r}"',
            SCALES[n],
        )
        for c in COORDINATES
        for r in ROUNDINGS
        for n in ("up2", "half")
    ),
    *(
        _scaled(
            f"nearest_asymmetric_floor_{n}",
            'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
            SCALES[n],
        )
        for n in ("up3_2", "odd")
    ),
    *(
        _scaled(f"{mode}_{c}_{n}", f'mode="{mode}", coordinate_transformation_mode="{c}"', scales)
        for mode in ("linear", "cubic")
        for c in COORDINATES
        for n, scales in SCALES.items()
        if mode == "linear" or n in ("up2", "odd")
    ),
    *(
        _sized(f"{mode}_{c}_to_{n}", f'mode="{mode}", coordinate_transformation_mode="{c}"', sizes)
        for mode in ("nearest", "linear")
        for c in COORDINATES
        for n, sizes in (
            ("8x12", "1,2,8,12"),
            ("5x9", "1,2,5,9"),
            ("3x2", "1,2,3,2"),
            ("1x1", "1,2,1,1"),
            ("same", "1,2,4,6"),
        )
        if mode == "linear" or c in ("asymmetric", "half_pixel")
    ),
    Case("defaults", IMAGE, "y = Resize(x, , k)", "float[4] k = {1.0, 1.0, 2.0, 2.0}"),
    _scaled("linear_defaults", 'mode="linear"', SCALES["up2"]),
    _scaled("cubic_defaults", 'mode="cubic"', SCALES["up2"]),
    _scaled("cubic_coeff_05", 'mode="cubic", cubic_coeff_a=-0.5', SCALES["up2"]),
    _scaled("cubic_exclude_outside", 'mode="cubic", exclude_outside=1', SCALES["odd"]),
    _sized(
        "cubic_align_corners_sizes", 'mode="cubic", coordinate_transformation_mode="align_corners"', "1,2,7,9"
    ),
    *(
        _scaled(f"{mode}_antialias_{n}", f'mode="{mode}", antialias=1', SCALES[n])
        for mode in ("linear", "cubic")
        for n in ("half", "odd", "up2")
    ),
    _sized("linear_antialias_sizes", 'mode="linear", antialias=1', "1,2,3,3"),
    Case(
        "crop_and_resize_nearest",
        IMAGE,
        'y = Resize<mode="nearest", coordinate_transformation_mode="tf_crop_and_resize">(x, r, , k)',
        "float[8] r = {0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.8, 0.9}, int64[4] k = {1,2,5,7}",
    ),
    _scaled("one_axis_height", 'mode="linear"', "1.0, 1.0, 2.0, 1.0"),
    _scaled(
        "one_axis_width_nearest",
        'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
        "1.0, 1.0, 1.0, 2.0",
    ),
    _scaled(
        "channels_nearest",
        'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
        "1.0, 2.0, 1.0, 1.0",
    ),
    _scaled("3d_linear", 'mode="linear"', "1.0, 1.0, 2.0", "float[1,2,5] x"),
    _scaled(
        "3d_nearest",
        'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
        "1.0, 1.0, 2.0",
        "float[1,2,5] x",
    ),
    _scaled("2d_linear", 'mode="linear"', "2.0, 2.0", "float[4,5] x"),
    _scaled(
        "5d_nearest",
        'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
        "1.0, 1.0, 2.0, 2.0, 2.0",
        "float[1,2,2,3,2] x",
    ),
    _scaled("5d_linear", 'mode="linear"', "1.0, 1.0, 2.0, 2.0, 2.0", "float[1,2,2,3,2] x"),
    _scaled("linear_up2_batch_is_channels", 'mode="linear"', SCALES["up2"], "float[3,3,3,3] x"),
    _scaled("linear_from_1x1", 'mode="linear"', "1.0, 1.0, 4.0, 4.0", "float[1,3,1,1] x"),
    _scaled(
        "linear_align_corners_from_1x1",
        'mode="linear", coordinate_transformation_mode="align_corners"',
        "1.0, 1.0, 4.0, 4.0",
        "float[1,3,1,1] x",
    ),
    Case(
        "nearest_uint8",
        "uint8[1,2,4,4] x",
        'y = Resize<mode="nearest", '
        'coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , k)',
        "float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    Case(
        "conv_then_resize",
        "float[1,3,4,4] x",
        "c = Conv<pads=[1,1,1,1]>(x, w)\n"
        'u = Resize<mode="linear", coordinate_transformation_mode="align_corners">(c, , k)\n'
        "y = Conv(u, v)",
        "float[4,3,3,3] w, float[4] k = {1.0, 1.0, 2.0, 2.0}, float[2,4,1,1] v",
    ),
    Case(
        "resize_concat",
        "float[1,2,4,4] x, float[1,3,8,8] z",
        'u = Resize<mode="nearest">(x, , k)\ny = Concat<axis=1>(u, z)',
        "float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    Case(
        "sizes_computed",
        "float[1,2,4,4] x, float[1,3,7,9] z",
        "s = Shape<start=2, end=4>(z)\nh = Shape<start=0, end=2>(x)\n"
        'k = Concat<axis=0>(h, s)\ny = Resize<mode="linear">(x, , , k)',
    ),
]

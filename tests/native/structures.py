"""Structures of edgekit.h for ctypes."""

from __future__ import annotations

import ctypes

PICTURE, SOUND = 0, 1
"""Kinds of ``edgekit_input``."""


class Tensor(ctypes.Structure):
    """``edgekit_tensor``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int),
        ("shape", ctypes.c_int64 * 16),
        ("bytes", ctypes.c_void_p),
        ("size_bytes", ctypes.c_size_t),
    )


class Variant(ctypes.Structure):
    """``edgekit_variant``."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("name", "target", "profile", "precision", "status")),
        ("files", ctypes.c_int),
        ("usable", ctypes.c_int),
        ("time_ms", ctypes.c_double),
    )


class File(ctypes.Structure):
    """``edgekit_file``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_char_p),
        ("sha256", ctypes.c_char_p),
        ("size_bytes", ctypes.c_int64),
    )


class Placement(ctypes.Structure):
    """``edgekit_placement``."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("frame_width", "frame_height", "input_width", "input_height")),
        *((name, ctypes.c_double) for name in ("scale_x", "scale_y", "offset_x", "offset_y")),
    )


class Input(ctypes.Structure):
    """``edgekit_input``."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("values", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("width", "height", "order")),
        ("count", ctypes.c_size_t),
        *((name, ctypes.c_int) for name in ("rate_hz", "begins", "ends")),
    )


class Prepared(ctypes.Structure):
    """``edgekit_prepared``."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("inputs", ctypes.POINTER(Tensor)),
        ("placement", Placement),
        ("start_s", ctypes.c_double),
        ("end_s", ctypes.c_double),
    )


class Item(ctypes.Structure):
    """``edgekit_item``."""

    _fields_ = (
        ("index", ctypes.c_int64),
        ("label", ctypes.c_char_p),
        ("score", ctypes.c_float),
        ("box", ctypes.c_float * 4),
    )


class Prediction(ctypes.Structure):
    """``edgekit_prediction``."""

    _fields_ = (
        ("kind", ctypes.c_char_p),
        ("count", ctypes.c_size_t),
        ("items", ctypes.POINTER(Item)),
        ("start_s", ctypes.c_double),
        ("end_s", ctypes.c_double),
    )


class FallbackRecord(ctypes.Structure):
    """``edgekit_fallback``."""

    _fields_ = (("from_", ctypes.c_char_p), ("to", ctypes.c_char_p), ("reason", ctypes.c_char_p))


class Options(ctypes.Structure):
    """``edgekit_options``."""

    _fields_ = (("variant", ctypes.c_char_p), ("strict", ctypes.c_int), ("threads", ctypes.c_int))

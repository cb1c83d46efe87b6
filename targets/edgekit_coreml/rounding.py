"""Weights in float16 whose errors cancel.

Rounding each weight to the nearest float16 leaves errors that add up: a kernel that is to output zero for
an even surface then outputs something else, and a deep network amplifies it. So each weight of a kernel is
rounded with what the ones before it were off by, from the largest to the smallest: the errors of a kernel
sum to less than one step of its smallest weight.

Measured by the reference executor, every value rounded to float16; nearest, then so:

    CenterFace, four outputs, one photograph   25.0, 32.7, 21.2, 35.8  ->  36.6, 45.1, 32.9, 47.4 dB
    EfficientNet-Lite0, six images             45.5        ->  49.3 dB
    COCO SSD MobileNet-v2, six images          39.6, 66.4  ->  41.9, 66.9 dB
    YOLOX-nano, six images                     42.7        ->  44.4 dB
    ResNet-8, PP-OCRv4's recogniser            56.1, 40.1  ->  55.6, 39.2 dB

Cancelling over the channels too, which have means of their own, gained nothing on average and cost ResNet-8
6 dB. A kernel of one weight has nothing to cancel with.
"""

from __future__ import annotations

from math import prod

import numpy as np

from edgekit.tensor_spec import Array
from edgekit_coreml.values import HALF_LIMIT


def rounded_kernels(weights: Array) -> Array:
    """float32 weights [output channels, input channels, ...] as float16; the errors of each kernel cancel.

    >>> kernels = np.array([[[0.1, 0.2, -0.3]]], np.float32)
    >>> nearest, rounded = kernels.astype(np.float16), rounded_kernels(kernels)
    >>> bool(abs(rounded.sum(dtype=np.float64)) < abs(nearest.sum(dtype=np.float64)))
    True
    """
    clipped: Array = np.clip(weights, -HALF_LIMIT, HALF_LIMIT)
    size = prod(weights.shape[2:])
    if size == 1:
        return clipped.astype(np.float16)
    rows = clipped.reshape(-1, size).astype(np.float64)
    order = np.argsort(-np.abs(rows), axis=1, kind="stable")
    ordered = np.ascontiguousarray(np.take_along_axis(rows, order, axis=1).T)
    result: Array = np.empty(ordered.shape, np.float16)
    carried = np.zeros(len(rows))
    for index, column in enumerate(ordered):
        exact = column + carried
        result[index] = exact
        carried = exact - result[index]
    rounded: Array = np.empty(rows.shape, np.float16)
    np.put_along_axis(rounded, order, result.T, axis=1)
    return rounded.reshape(weights.shape)

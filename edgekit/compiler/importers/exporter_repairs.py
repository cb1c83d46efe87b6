"""Repairs of two forms that skl2onnx 1.20 writes wrong.

Isotonic calibration takes the nearest threshold (sklearn-onnx 1151) instead of interpolating:

    y = y[0] + sum of (y[i+1] - y[i]) * clip((x - x[i]) / (x[i+1] - x[i]), 0, 1)

Neighbours weighted by distance have equal weights (sklearn-onnx 611), because distances get a minus sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.tensor_spec import Array


def register_interpolation() -> None:
    """Make skl2onnx interpolate isotonic calibration."""
    from skl2onnx.operator_converters import calibrated_classifier_cv

    calibrated_classifier_cv._transform_isotonic = _interpolate


def interpolation(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return the starts, inverse lengths and rises of the segments between thresholds, float32."""
    starts = x.astype(np.float32)
    # Thresholds that are one float32 are a step of the smallest width.
    widths = np.maximum(np.diff(starts), np.spacing(np.maximum(np.abs(starts[:-1]), np.float32(1e-6))))
    return starts[:-1], (1 / widths).astype(np.float32), np.diff(y).astype(np.float32)


def _interpolate(scope: Any, container: Any, model: Any, x: str, k: int, dtype: Any, proto_type: int) -> str:
    """Write the calibration of class ``k``; replaces a function of skl2onnx, whose arguments it has."""
    calibrator = model.calibrators[k]
    starts, inverse, rises = interpolation(calibrator.X_thresholds_, calibrator.y_thresholds_)
    names = [scope.get_unique_variable_name(f"isotonic_{number}") for number in range(10)]
    arrays = {
        names[0]: np.array([-1, 1], np.int64), names[1]: starts, names[2]: inverse, names[3]: np.float32(0),
        names[4]: np.float32(1), names[5]: rises[:, None],
        names[6]: calibrator.y_thresholds_[:1].astype(np.float32),
    }  # fmt: skip
    for name, array in arrays.items():
        kind = 7 if array.dtype == np.int64 else 1  # of TensorProto
        container.add_initializer(name, kind, list(np.shape(array)), np.ravel(array).tolist())
    steps = [
        ("Reshape", names[0]), ("Sub", names[1]), ("Mul", names[2]), ("Clip", names[3], names[4]),
        ("MatMul", names[5]), ("Add", names[6]),
    ]  # fmt: skip
    for operator, *operands in steps:
        output = scope.get_unique_variable_name(f"isotonic_{operator}")
        container.add_node(operator, [x, *operands], [output], name=scope.get_unique_operator_name(operator))
        x = output
    return x


def repair_distances(proto: Any) -> None:
    """Remove the minus sign of distances that weight neighbours, in place.

    TopK<largest=0> -> Mul(-1) -> Max(1e-6) -> Reciprocal    =>    TopK<largest=0> -> Max(1e-6) -> Reciprocal
    """
    producers = {output: node for node in proto.graph.node for output in node.output}
    for node in proto.graph.node:
        product = producers.get(node.input[0]) if node.op_type == "Max" else None
        nearest = (
            producers.get(product.input[0]) if product is not None and product.op_type == "Mul" else None
        )
        if product is None or nearest is None or nearest.op_type != "TopK":
            continue
        if any(attribute.name == "largest" and attribute.i == 0 for attribute in nearest.attribute):
            node.input[0] = product.input[0]

"""ONNX forms of PyTorch's operators that ``torch.onnx`` lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def missing_forms(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Return the forms by operator, for ``torch.onnx.export``'s ``custom_translation_table``.

    ``aten._is_all_true`` is a check of a tensor's values, as transformers writes them into its networks.
    """
    import onnxscript

    opset = onnxscript.opset18

    def is_all_true(values: Any) -> Any:
        smallest = opset.ReduceMin(opset.Cast(values, to=onnxscript.INT32.dtype), keepdims=0)
        return opset.Cast(smallest, to=onnxscript.BOOL.dtype)

    return {torch.ops.aten._is_all_true.default: is_all_true}

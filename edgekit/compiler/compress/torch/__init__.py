"""Training on the ONNX graph itself, in PyTorch (extra ``train``): distillation, and what needs gradients.

    from edgekit.compiler.compress.torch import OnnxModule

    module = OnnxModule(model)              # an opened, canonical onnx_ir.Model
    answers = module({"x": batch})          # [batch, *shape of the input] -> [batch, *shape of the output]
    module.write_back()                     # the same graph with the weights that were trained

``fake_quantize`` and ``prune_groups`` are for loops of one's own, with modules of PyTorch.

There is no converter: each node has one function (``ops_*.py``, a table as targets have), the weights of
Conv, Gemm, MatMul ... are ``torch.nn.Parameter``, and they are written back into the same graph.

Names are loaded when they are first used, so that EdgeKit runs without PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from edgekit.errors import MissingDependency

if TYPE_CHECKING:
    from edgekit.compiler.compress.torch.fake_quantization import FakeQuantized as FakeQuantized
    from edgekit.compiler.compress.torch.fake_quantization import FakeQuantizedModule as FakeQuantizedModule
    from edgekit.compiler.compress.torch.fake_quantization import fake_quantize as fake_quantize
    from edgekit.compiler.compress.torch.module_groups import prune_groups as prune_groups
    from edgekit.compiler.compress.torch.onnx_module import OnnxModule as OnnxModule

_HOME = {
    "FakeQuantized": "edgekit.compiler.compress.torch.fake_quantization",
    "FakeQuantizedModule": "edgekit.compiler.compress.torch.fake_quantization",
    "fake_quantize": "edgekit.compiler.compress.torch.fake_quantization",
    "OnnxModule": "edgekit.compiler.compress.torch.onnx_module",
    "prune_groups": "edgekit.compiler.compress.torch.module_groups",
}

__all__ = ["need_torch", *sorted(_HOME)]


def need_torch(doing: str) -> None:
    """Say what to install before an import of PyTorch fails."""
    if find_spec("torch") is None:
        raise MissingDependency("torch", doing, extra="train")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    need_torch(f"edgekit.compiler.compress.torch.{name}")
    return getattr(import_module(_HOME[name]), name)

"""Message with a smaller model's figures from its child; the model itself is in a file.

Everything in it is checked. The ONNX file is trusted no more than the model that it comes from: the next
reader opens it in a child of its own.
"""

from __future__ import annotations

from edgekit.compiler.compress.goal import ShrinkGoal
from edgekit.compiler.pipeline.shrunk_model import ShrunkModel
from edgekit.compiler.sandbox.messages import Broken
from edgekit.system.formats.declared_json import decode, encode
from edgekit.tensor_spec import Json


def shrunk_figures(shrunk: ShrunkModel) -> Json:
    return encode(ShrunkModel, shrunk, "name", "onnx", "goal")


def parse_shrunk(message: Json, name: str, goal: ShrinkGoal, onnx: bytes) -> ShrunkModel:
    try:
        model: ShrunkModel = decode(ShrunkModel, message, "shrunk", name=name, goal=goal, onnx=onnx)
        if min(*model.multiplications, *model.weight_bytes, model.test_samples) < 0:
            raise ValueError("a number is below 0")
    except ValueError as problem:
        raise Broken(f"figures of a smaller model: {problem}") from None
    return model

"""Other tasks for trained networks: CenterFace's answers in the form of three YOLO heads, and a segmenter as
a matting network. No package has trained networks of these tasks that everybody may use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

STRIDE, ROWS, COLUMNS = 4, 120, 160
HEATMAP, SCALE, OFFSET, LANDMARKS = "537", "538", "539", "540"
"""CenterFace's outputs [1, channels, ROWS, COLUMNS]; y is before x."""


class _Tail:
    """Nodes behind CenterFace's outputs, all of them [1, channels, ROWS * COLUMNS], in pixels, x before y."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        flat = self.constant(np.array([1, -1, ROWS * COLUMNS], np.int64))
        self.score, scale, offset, landmarks = (
            self("Reshape", name, flat) for name in (HEATMAP, SCALE, OFFSET, LANDMARKS)
        )
        stride, half = self.constant(np.float32(STRIDE)), self.constant(np.float32(0.5))
        y, x = np.indices((ROWS, COLUMNS), np.float32).reshape(2, 1, 1, -1)
        cells = self.constant(np.concatenate([x, y], axis=1) + np.float32(0.5))
        self.size = self("Mul", self("Exp", self.swapped(scale, 0)), stride)
        self.centre = self("Mul", self("Add", self.swapped(offset, 0), cells), stride)
        corner = self("Sub", self.centre, self("Mul", self.size, half))
        self.points = [
            self("Add", self("Mul", self.swapped(landmarks, at), self.size), corner) for at in range(0, 10, 2)
        ]
        self.between_eyes = self("Sub", self.points[1], self.points[0])

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"head_{len(self._graph.node)}"
        self._graph.node.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object) -> str:
        name = f"constant_{len(self._graph.initializer)}"
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def channel(self, values: str, index: int) -> str:
        return self("Gather", values, self.constant(np.array([index], np.int64)), axis=1)

    def swapped(self, values: str, index: int) -> str:
        """Return two channels in the other order."""
        return self("Gather", values, self.constant(np.array([index + 1, index], np.int64)), axis=1)

    def finish(self, *more: str) -> None:
        """Make ``predictions`` [1, channels, n] the only output."""
        joined = [self.centre, self.size, self.score, *more]
        self._graph.node.append(helper.make_node("Concat", joined, ["predictions"], axis=1))
        del self._graph.output[:]
        self._graph.output.append(helper.make_tensor_value_info("predictions", 1, None))


def _pose(tail: _Tail) -> None:
    tail.finish(*tail.points)


def _obb(tail: _Tail) -> None:
    across, down = (tail.channel(tail.between_eyes, index) for index in (0, 1))
    tail.finish(tail("Atan", tail("Div", down, tail("Add", across, tail.constant(np.float32(1e-3))))))


def _instances(tail: _Tail) -> None:
    """A mask is a circle around the nose: r^2 - |p - c|^2 > 0, a sum of four planes with coefficients."""
    nose, sums = tail.points[2], []
    for values in (tail.between_eyes, nose):
        squares = tail("Mul", values, values)
        sums.append(tail("Add", tail.channel(squares, 0), tail.channel(squares, 1)))
    zero = tail("Mul", tail.score, tail.constant(np.float32(0)))
    tail.finish(
        tail("Sub", *sums),
        tail("Mul", nose, tail.constant(np.float32(2))),
        tail("Sub", zero, tail.constant(np.float32(1))),
    )
    y, x = STRIDE * (np.indices((ROWS, COLUMNS), np.float32) + 0.5)
    planes = np.stack([np.ones_like(x), x, y, x * x + y * y])[None].astype(np.float32)
    graph, once = tail._graph, tail("ReduceMax", zero, keepdims=0)  # not a constant: every target computes it
    graph.node.append(helper.make_node("Add", [tail.constant(planes), once], ["prototypes"]))
    graph.output.append(helper.make_tensor_value_info("prototypes", 1, planes.shape))


@dataclass(frozen=True)
class Head:
    """Task of a network: its card's table, and what is appended to the graph; None if nothing."""

    card: str
    append: Callable[[_Tail], None] | None = None


_YOLO = 'decode = "yolov8"\nlabels = ["face"]\niou = 0.3\noutputs = { predictions = "predictions"'
HEADS: Mapping[str, Head] = {
    "pose": Head(f'kind = "pose"\ndimensions = 2\nkeypoints = ["a", "b", "c", "d", "e"]\n{_YOLO} }}', _pose),
    "obb": Head(f'kind = "obb"\n{_YOLO} }}', _obb),
    "segment-instances": Head(
        f'kind = "segment-instances"\n{_YOLO}, prototypes = "prototypes" }}', _instances
    ),
    "matting": Head(
        'kind = "matting"\ndecode = "alpha"\nlayout = "NHWC"\noutputs = { alpha = "activation_10" }'
    ),
}


def with_head(task: str, folder: Path) -> Path:
    """Write a network with another task: ``source.onnx`` and ``card.toml`` in a folder in its own."""
    head, other = HEADS[task], folder / task
    other.mkdir(exist_ok=True)
    model = onnx.load(folder / "source.onnx")
    if head.append is not None:
        head.append(_Tail(model))
    onnx.save(model, other / "source.onnx")
    inputs = (folder / "card.toml").read_text("utf-8").partition("[task]")[0]
    (other / "card.toml").write_text(f"{inputs}[task]\n{head.card}\n", "utf-8")
    return other

"""Zero-shot classification: an image tower that carries the embeddings of its labels (CLIP, SigLIP).

    embedding [1, d] -> its own length 1 -> times the labels' vectors [d, labels] -> cosines [1, labels]

The text tower makes the vectors once, where the bundle is built, and a device needs the image tower alone.
The result is a classifier as any other: engines, precisions, metrics and pictures are those of ``classify``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.errors import UsageError
from edgekit.processing.card import Card, load_card
from edgekit.processing.task import Task
from edgekit.processing.task_table import find_decoder
from edgekit.runtime.gallery import Gallery
from edgekit.system.atomic_files import write_atomically
from edgekit.tensor_spec import Array

SCALE = 100.0
"""Factor of the cosines before the softmax: that of OpenAI's weights, at which CLIP's training bounds it."""
OUTPUT = "label_cosines"
LEAST = 1e-12


@dataclass(frozen=True)
class LabelMatcher:
    """Classifier of labels: ``save`` writes the ONNX file, which ``card`` describes.

    Attributes:
        onnx: The model, as an ONNX file.
        card: Its card, with the labels.
    """

    onnx: bytes
    card: Card

    def save(self, path: Path | str) -> None:
        """Write the ONNX file atomically."""
        write_atomically(Path(path), [self.onnx])


def match_labels(
    model: Path | str,
    card: Card | str | os.PathLike[str],
    gallery: Gallery | str | os.PathLike[str],
    *,
    scale: float = SCALE,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> LabelMatcher:
    """Turn an image tower into a classifier of labels.

    Args:
        model: ONNX file of the image tower.
        card: Its card, or the card's path; the task is ``embed`` with ``decode = "vector"``.
        gallery: Embeddings of the labels by the text tower, or their file. A label with several, of several
            descriptions, has their mean.
        scale: Factor of the cosines before the softmax; CLIP's ``logit_scale.exp()``.
        shapes: Static shapes by input name, as in ``build``.

    Raises:
        UsageError: the card has another task, the gallery is empty, or its embeddings have another size.
        CardError: the card is malformed or does not describe the model.
        ModelError: the file is not a model.
    """
    if not isinstance(card, Card):
        card = load_card(card)
    labels, vectors = _means(gallery if isinstance(gallery, Gallery) else Gallery.open(gallery))
    task = card.task
    if task is None or (task.kind, task.decode) != ("embed", "vector"):
        raise UsageError(
            f'{card.title} does not return embeddings; its card needs kind = "embed" and decode = "vector"'
        )
    if not 0 < scale < float("inf"):
        raise UsageError(f"scale is {scale:g}; it must be above 0")
    opened = open_model(model, shapes)
    outputs = {value.name: value for value in opened.graph.outputs}
    name = task.outputs["embedding"]
    if name not in outputs:
        raise UsageError(f"{card.title}: the card's output {name} is not an output of {Path(model).name}")
    size = _size(outputs[name])
    if size != len(vectors):
        raise UsageError(
            f"the labels' embeddings have {len(vectors)} values but {name} {size}; both towers must be those "
            "of one model"
        )
    _append(opened.graph, outputs[name], vectors)
    defaults = find_decoder("classify", "logits").options()
    options = replace(defaults, top=min(defaults.top, len(labels)), scale=scale)
    matched = Task("classify", "logits", {"scores": OUTPUT}, tuple(labels), options)
    return LabelMatcher(save_model(opened), replace(card, task=matched))


def _means(gallery: Gallery) -> tuple[list[str], Array]:
    """Return the labels in order, and their vectors, float32 [d, labels], each of length 1."""
    labels = list(dict.fromkeys(gallery.names))
    if not labels:
        raise UsageError("the gallery of labels is empty; add the text tower's embedding of each label")
    names = np.array(gallery.names, np.str_)
    means = np.stack([gallery.vectors[names == label].astype(np.float64).mean(0) for label in labels])
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    if not (lengths > LEAST).all():
        label = labels[int(np.argmin(lengths))]
        raise UsageError(f"the embeddings of {label!r} cancel out; leave some of them out")
    return labels, np.ascontiguousarray((means / lengths).T.astype(np.float32))


def _size(value: ir.Value) -> int:
    shape = static_dims(value) or ()
    count = int(np.prod(shape)) if shape else 0
    return count if count == max(shape, default=0) else 0


def _append(graph: ir.Graph, embedding: ir.Value, vectors: Array) -> None:
    """Add the nodes, and make their result the only output."""
    nodes: list[ir.Node] = []

    def add(op: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        node = ir.node(op, list(inputs), attributes=attributes, name=f"labels/{op.lower()}{len(nodes)}")
        nodes.append(node)
        return node.outputs[0]

    def constant(name: str, array: Array) -> ir.Value:
        value = ir.val(f"labels/{name}", const_value=ir.tensor(array, name=f"labels/{name}"))
        graph.register_initializer(value)
        return value

    row = add("Reshape", embedding, constant("shape", np.array([1, len(vectors)], np.int64)))
    squares = add("ReduceSum", add("Mul", row, row), constant("axis", np.array([1], np.int64)), keepdims=1)
    length = add("Sqrt", add("Max", squares, constant("least", np.array(LEAST, np.float32))))
    cosines = add("MatMul", add("Div", row, length), constant("vectors", vectors))
    cosines.name, cosines.shape = OUTPUT, ir.Shape([1, vectors.shape[1]])
    cosines.type = ir.TensorType(ir.DataType.FLOAT)
    graph.extend(nodes)
    graph.outputs.clear()
    graph.outputs.append(cosines)

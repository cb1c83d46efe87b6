"""Names of tensors: in a .tflite file they may be empty or the same, in ONNX they may not."""

from __future__ import annotations

from collections import Counter

from edgekit_tflite.graph import Graph


def end_names(graph: Graph) -> tuple[list[str], list[str]]:
    """Names of the ONNX model's inputs and outputs: those in the file, as far as each has its own."""
    names = unique_names(graph)
    inputs = [names[i] for i in graph.inputs]
    outputs, taken = [], set(inputs)
    for number, i in enumerate(graph.outputs):
        name = names[i] if names[i] not in taken else f"{names[i]}/output_{number}"
        taken.add(name)
        outputs.append(name)
    return inputs, outputs


def unique_names(graph: Graph) -> list[str]:
    """A name for each tensor: its own, where no other has it; inputs and outputs choose first."""
    ends = [*graph.inputs, *graph.outputs]
    found: dict[int, str] = {}
    taken: Counter[str] = Counter()
    for i in [*ends, *range(len(graph.tensors))]:
        if i in found:
            continue
        name = graph.tensors[i].name or f"tensor_{i}"
        while name in taken:
            taken[name] += 1
            name = f"{name}_{taken[name]}"
        taken[name] = 0
        found[i] = name
    return [found[i] for i in range(len(graph.tensors))]

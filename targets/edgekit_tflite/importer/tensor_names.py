"""Names of tensors: in a .tflite file they may be empty or the same, in ONNX they may not."""

from __future__ import annotations

from collections import Counter

from edgekit_tflite.graph import Graph


def end_names(graph: Graph) -> tuple[list[str], list[str]]:
    """Return the names of the ONNX model's inputs and outputs: those in the file, where they are unique."""
    names = unique_names(graph)
    inputs = [names[i] for i in graph.inputs]
    outputs, used = [], set(inputs)
    for number, i in enumerate(graph.outputs):
        name = names[i] if names[i] not in used else f"{names[i]}/output_{number}"
        used.add(name)
        outputs.append(name)
    return inputs, outputs


def unique_names(graph: Graph) -> list[str]:
    """Return a unique name for each tensor: its own if no other has it. Inputs and outputs choose first."""
    ends = [*graph.inputs, *graph.outputs]
    name_by_tensor: dict[int, str] = {}
    used: Counter[str] = Counter()
    for i in [*ends, *range(len(graph.tensors))]:
        if i in name_by_tensor:
            continue
        name = graph.tensors[i].name or f"tensor_{i}"
        while name in used:
            used[name] += 1
            name = f"{name}_{used[name]}"
        used[name] = 0
        name_by_tensor[i] = name
    return [name_by_tensor[i] for i in range(len(graph.tensors))]

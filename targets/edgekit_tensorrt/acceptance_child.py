"""Child process of ``acceptance``: parse and build one file with NVIDIA's compiler, and report the result.

    python acceptance_child.py MODEL.onnx ANSWER.json

It is a separate process: a process's first logger gets all messages, a crafted file has killed the parser,
and unloading the library on a machine without a driver has crashed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<kind>\w*), (?P<rest>.*)$")
PARTS = re.compile(r"(Inputs|Constants|Outputs): \[(.*?)\](?=, (?:Constants|Outputs|TacticName|StreamId))")
SOURCE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


def main(model: str, report: str) -> None:
    result = build(Path(model).read_bytes())
    Path(report).write_text(json.dumps(result), "utf-8")
    os._exit(0)  # without the destructors, which may crash without a driver


def build(content: bytes) -> dict[str, Any]:
    """Parse and build an ONNX file, and report the messages of NVIDIA's parser and builder.

    Returns:
        ``version``; ``refusals``: ``{node, op, message}`` each, empty if it was built; ``layers`` of the
        engine: ``{kind, nodes, inputs, constants, outputs}`` with NVIDIA's names of element types.
    """
    import tensorrt_rtx_bindings as trt

    messages: list[tuple[str, str]] = []

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            messages.append((severity.name, message))

    logger = Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    report: dict[str, Any] = {"version": trt.__version__, "refusals": [], "layers": []}
    if not parser.parse(content):
        for number in range(parser.num_errors):
            error = parser.get_error(number)
            row = {"node": error.node_name(), "op": error.node_operator(), "message": error.desc()}
            report["refusals"].append(row)
        return report
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        words = [text for severity, text in messages if severity in ("ERROR", "INTERNAL_ERROR")]
        report["refusals"].append({"node": "", "op": "", "message": " ".join(words) or "it built no engine"})
        return report
    report["layers"] = [layer for _, text in messages for layer in read_layers(text)]
    return report


def read_layers(text: str) -> list[dict[str, Any]]:
    """Read the layers listed in one message of the detailed log.

    >>> text = "Layers:\\nName: c, LayerType: correlation, Inputs: [ { Name: x, Datatype: Int8 }], "
    >>> text += "Constants: [ { Name: w, Datatype: Int8 }], Outputs: [ { Name: y, Datatype: Half }], "
    >>> read_layers(text + "TacticName: t, StreamId: 0, Metadata: [ONNX Layer: conv]")
    ... # doctest: +NORMALIZE_WHITESPACE
    [{'kind': 'correlation', 'nodes': ['conv'], 'inputs': ['Int8'], 'constants': ['Int8'],
      'outputs': ['Half']}]
    """
    if not text.startswith("Layers:"):
        return []
    layers = []
    for line in text.splitlines()[1:]:
        match = LAYER.match(line)
        if match is None:
            break  # the I/O tensors follow
        parts = {name.lower(): re.findall(r"Datatype: (\w+)", body) for name, body in PARTS.findall(line)}
        layers.append(
            {
                "kind": match["kind"],
                "nodes": SOURCE.findall(line),
                **{name: parts.get(name, []) for name in ("inputs", "constants", "outputs")},
            }
        )
    return layers


if __name__ == "__main__":
    main(*sys.argv[1:])

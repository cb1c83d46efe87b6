"""Child process of ``npu.py``: ``compile_npu FOLDER VENDOR CHIP`` makes ``npu.tflite`` of ``model.tflite``.

The vendor's compiler may crash, and LiteRT's Python writes to the terminal.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from edgekit_tflite.run import FILE

COMPILED, FACTS = "npu.tflite", "facts.json"
UNKNOWN_CHIP = 3
"""Exit status."""


def main(folder: Path, vendor: str, chip: str) -> str:
    """Compile, and write the facts; return why the compiler failed, or "".

    The facts: ``operators`` of the model, ``on_npu`` of them, in how many ``partitions``.
    """
    aot: Any = importlib.import_module("ai_edge_litert.aot.aot_compile")
    target: Any = importlib.import_module(f"ai_edge_litert.aot.vendors.{vendor}.target")
    chips = {model.value: model for model in target.SocModel if model.value != "ALL"}
    if chip not in chips:
        print(f"compiles for {', '.join(chips)}", file=sys.stderr)
        raise SystemExit(UNKNOWN_CHIP)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        result = aot.aot_compile(
            str(folder / FILE), output_dir=str(folder / "out"), target=[target.Target(chips[chip])]
        )
    if result.failed_backends:
        return str(result.failed_backends[0][1])
    model = result.models[0]
    graphs = model.partition_stats.subgraph_stats
    facts = {
        "operators": sum(graph.num_total_ops for graph in graphs),
        "on_npu": sum(graph.num_ops_offloaded for graph in graphs),
        "partitions": sum(graph.num_partitions_offloaded for graph in graphs),
    }
    model.save(folder / COMPILED, export_only=True)
    (folder / FACTS).write_text(json.dumps(facts), "utf-8")
    return ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]) or 0)

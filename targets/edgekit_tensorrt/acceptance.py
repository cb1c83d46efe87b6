"""NVIDIA's own compiler as a check of a file, on a machine without a GPU.

The wheels of TensorRT for RTX (``tensorrt-rtx-cu12-bindings``) hold NVIDIA's ONNX parser and builder, and
build engines without a GPU or driver. Its networks are strongly typed, like ours. It proves that the parser
accepts the file, its types fit, and the optimizer turns the intended layers into int8 kernels. Limits: it is
not the Jetson's TensorRT, its kernels are those of desktop GPUs, and nothing is run.

    https://docs.nvidia.com/deeplearning/tensorrt-rtx/latest/inference-library/cpu-engines.html
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.tensor_spec import Json
from edgekit_tensorrt.device.presence import compiler_version

SECONDS_LIMIT = 600.0
"""The largest of the measured models took 2 s."""
NO_PLUGIN = "Plugin not found"
"""The parser says so of DeformConv, a plugin of TensorRT (its list of 10.1) and none of TensorRT for RTX."""
CHILD = Path(__file__).with_name("acceptance_child.py")


@dataclass(frozen=True)
class Acceptance:
    """Result of NVIDIA's compiler.

    Attributes:
        refusals: Rejected nodes as ``(node, op, message)``; empty if it built an engine.
        quantized: Requested nodes that it computes on int8 or fp8.
    """

    version: str
    refusals: tuple[tuple[str, str, str], ...]
    quantized: frozenset[str]

    @property
    def accepted(self) -> bool:
        return not self.refusals

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Return operators that are plugins of TensorRT alone, if nothing else is rejected."""
        lacking = [op for _, op, message in self.refusals if NO_PLUGIN in message]
        return tuple(sorted(set(lacking))) if len(lacking) == len(self.refusals) else ()

    def as_json(self, requested: Sequence[str], kind: str = "int8") -> dict[str, Json]:
        if self.unjudged:
            return {
                "by": None,
                "why": f"{self.version} lacks TensorRT's plugin for {', '.join(self.unjudged)}",
            }
        if not self.accepted:
            return {"by": self.version, "refused": [" ".join(row).strip() for row in self.refusals]}
        numbers = "numerics of the same file on ONNX Runtime CPU"
        words = f"accepted by NVIDIA's compiler ({self.version}); {numbers}; not run on a Jetson"
        facts: dict[str, Json] = {"by": self.version, "accepted": True, "says": words}
        if requested:
            facts[kind] = f"{len(self.quantized)} of {len(requested)} layers"
            facts[f"not_{kind}"] = sorted(set(requested) - self.quantized)
        return facts


def ask_compiler(content: bytes, quantized_nodes: Sequence[str] = ()) -> Acceptance:
    """Parse and build a file in a child process, if ``compiler_version`` is not None."""
    name = str(compiler_version())
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        model, report = Path(folder) / "model.onnx", Path(folder) / "answer.json"
        model.write_bytes(content)
        command = [sys.executable, str(CHILD), str(model), str(report)]
        try:
            child = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS_LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return Acceptance(name, (("", "", f"it did not end within {SECONDS_LIMIT:g} s"),), frozenset())
        if not report.exists():
            words = (child.stderr.strip().splitlines() or ["it printed no message"])[-1]
            died = f"it exited with code {child.returncode}: {words}"
            return Acceptance(name, (("", "", died),), frozenset())
        result = json.loads(report.read_text("utf-8"))
    refusals = tuple(
        (row["node"], row["op"], " ".join(row["message"].split())[:400]) for row in result["refusals"]
    )
    return Acceptance(name, refusals, _quantized_nodes(result["layers"]) & frozenset(quantized_nodes))


def _quantized_nodes(layers: Sequence[Mapping[str, Sequence[str]]]) -> frozenset[str]:
    return frozenset(
        node
        for layer in layers
        for kind in ("Int8", "FP8")
        if kind in layer["inputs"] and [*layer["inputs"], *layer["constants"]].count(kind) > 1
        for node in layer["nodes"]
    )

"""Ethos-U estimates by Arm's compiler vela. All figures are vela's estimates.

vela runs as a separate program, with the profile's system configuration and memory mode: without them it
assumes defaults. Host side.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from edgekit.errors import EngineError, MissingDependency
from edgekit.target.cost_estimate import CostEstimate, NodeEstimate
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Content
from edgekit_tflm.run import FILE

CONFIGURATIONS = "Arm/vela.ini"
"""The file of system configurations and memory modes, of vela's own."""
SECONDS = 600
"""vela takes 0.5 to 4 s for the networks that were tried."""
KIB = 1024
PLACED = re.compile(
    r"Warning \([^)]*\) operator: (?P<op>\S+), ofm: '(?P<node>[^']*)'\s*\n(?P<why>(?:[^\n]+\n)+)"
)
"""What ``--show-cpu-operations`` writes of each operator that it leaves to the CPU."""


def estimate(files: Mapping[str, Content], profile: Profile) -> CostEstimate | None:
    """Return vela's estimate of the file on the profile's NPU; None if the profile has no NPU.

    Raises:
        MissingDependency: vela is not installed.
        EngineError: it refuses the file, or its output is not understood.
    """
    if "accelerator" not in profile.facts:
        return None
    tool = f"ethos-u-vela {_version()}"
    device = str(profile.facts["accelerator"].value)
    options = [str(option) for option in profile.facts["compile_options"].value]
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        folder = Path(name)
        (folder / FILE).write_bytes(files[FILE])
        output = _run(folder, device, options, tool)
        try:
            summary = _rows(folder, "model_summary_*.csv")[0]
            layers = _rows(folder, "model_per-layer.csv")
            return _estimate(tool, device, options, summary, layers, reasons(output))
        except (LookupError, ValueError) as problem:
            raise EngineError(f"{tool} wrote tables of an unknown form: {problem}") from None


def _run(folder: Path, device: str, options: list[str], tool: str) -> str:
    command = [
        sys.executable, "-m", "ethosu.vela", str(folder / FILE), f"--accelerator-config={device}",
        f"--config={CONFIGURATIONS}", *(f"--{option}" for option in options), "--verbose-performance",
        "--show-cpu-operations", f"--output-dir={folder}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise EngineError(f"{tool} took more than {SECONDS} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it gives no reason"]
        raise EngineError(f"{tool} rejects the file: {lines[-1]}")
    return done.stdout


def _rows(folder: Path, pattern: str) -> list[dict[str, str]]:
    (path,) = folder.glob(pattern)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _estimate(
    tool: str,
    device: str,
    options: list[str],
    summary: Mapping[str, str],
    layers: list[dict[str, str]],
    reasons: Mapping[tuple[str, str], str],
) -> CostEstimate:
    nodes = [_node(row, reasons) for row in layers]
    on_cpu = sum(node.device != "NPU" for node in nodes)
    flash = sum(float(summary[f"{location}_flash_memory_used"]) for location in ("on_chip", "off_chip"))
    memory = {"ram": float(summary["sram_memory_used"]), "flash": flash}
    if dram := float(summary["dram_memory_used"]):
        memory["dram"] = dram
    left = f"cycles and time are those of the NPU: {on_cpu} nodes on the CPU are not in them"
    return CostEstimate(
        tool,
        ", ".join((device, *options)),
        round(float(summary["cycles_total"])),
        round(float(summary["inference_time"]) * 1000, 4),
        {name: round(kib * KIB) for name, kib in memory.items()},
        nodes,
        (left,) if on_cpu else (),
    )


def _node(row: Mapping[str, str], reasons: Mapping[tuple[str, str], str]) -> NodeEstimate:
    name, op, device = row["Name"], row["Original Operator"], row["Target"]
    if device == "NPU":
        return NodeEstimate(name, op, device, round(float(row["Op Cycles"])))
    reason = reasons.get((_spelled(op), name)) or reasons.get(("", name), "vela gives no reason")
    return NodeEstimate(name, op, device, None, reason)


def reasons(output: str) -> dict[tuple[str, str], str]:
    """Return (operator, output) that vela leaves to the CPU -> reason; operator "" matches any operator.

    >>> reasons("Warning (supported operators) operator: EXP, ofm: 'y'\\nReason: Float32\\nno INT8\\n\\n")
    {('', 'y'): 'Float32; no INT8', ('EXP', 'y'): 'Float32; no INT8'}
    """
    reason_by_node: dict[tuple[str, str], str] = {}
    for match in PLACED.finditer(output):
        text = "; ".join(match["why"].strip().removeprefix("Reason: ").splitlines())
        reason_by_node[("", match["node"])] = reason_by_node[(_spelled(match["op"]), match["node"])] = text
    return reason_by_node


def _spelled(op: str) -> str:
    """Normalize an operator's name: vela spells it CONV_2D in warnings and Conv2D in tables."""
    return op.replace("_", "").upper()


def _version() -> str:
    if find_spec("ethosu") is None:
        raise MissingDependency("ethos-u-vela", "estimating for an Ethos-U", extra="ethos-u")
    try:
        return version("ethos-u-vela")
    except PackageNotFoundError:
        return "of an unknown version"

"""Layer list of the compiler: where each layer runs, and its expected number of cycles."""

from __future__ import annotations

import re
from collections.abc import Mapping

from edgekit.system.formats import strict_json
from edgekit.target.cost_estimate import CostEstimate, NodeEstimate
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Content, Json
from edgekit_rknn.run import LAYERS_FILE
from edgekit_rknn.toolchain import VERSION

TABLE = "Network Layer Information Table"
ROW = re.compile(
    r"\]\s+(\d+)\s+(\S+)\s+(\S+)\s+(NPU|CPU|GPU)\s+(\S+)\s+(\S+)\s+(\d+)/(\d+)/(\d+)\s+(\d+)\s+(\S+)\s*$"
)
MEMORY = re.compile(r"Total (Internal|Weight) Memory Size:\s*([\d.]+)KB")
LIMIT_BYTES = 8 << 20


def read_layers(log: str) -> dict[str, Json]:
    """Read the layers and memory sizes from the verbose log of a build.

    Returns:
        ``layers``: ``{op, dtype, device, cycles, name}`` each; ``internal_kb`` and ``weight_kb``.

    >>> line = "D RKNN: [08:04:02.949] 1 ConvClip INT8 NPU (1,3,9,9),(8) (1,8,9,9) 23/112/112 151 Conv:/stem"
    >>> read_layers(f"{TABLE}\\n{line}\\nTotal Weight Memory Size: 6.5KB")
    ... # doctest: +NORMALIZE_WHITESPACE
    {'layers': [{'op': 'ConvClip', 'dtype': 'INT8', 'device': 'NPU', 'cycles': 112, 'name': '/stem'}],
     'weight_kb': 6.5}
    """
    table = log.rpartition(TABLE)[2]
    rows = [match for match in map(ROW.search, table.splitlines()) if match is not None]
    layers: list[Json] = [
        {
            "op": row[2],
            "dtype": row[3],
            "device": row[4],
            "cycles": int(row[9]),
            "name": row[11].partition(":")[2] or row[11],
        }
        for row in rows
    ]
    sizes: dict[str, Json] = {f"{kind.lower()}_kb": float(size) for kind, size in MEMORY.findall(table)}
    return {"layers": layers, **sizes}


def estimate(files: Mapping[str, Content], profile: Profile) -> CostEstimate | None:
    """Return the compiler's cost estimate for the files it made; None if it gave none."""
    report = strict_json.decode(bytes(files[LAYERS_FILE]), LAYERS_FILE, LIMIT_BYTES)
    rows = [row for row in report["layers"] if row["op"] not in ("InputOperator", "OutputOperator")]
    if not rows:
        return None
    nodes = [
        NodeEstimate(
            row["name"],
            row["op"],
            row["device"],
            row["cycles"] if row["device"] == "NPU" else None,
            "" if row["device"] == "NPU" else "the compiler gives it to the CPU",
        )
        for row in rows
    ]
    memory = {
        name: int(1024 * report[key])
        for name, key in (("internal", "internal_kb"), ("weights", "weight_kb"))
        if key in report
    }
    notes = [
        "cycles are the larger of memory's and the NPU's, layer by layer; layers on the CPU are not in them"
    ]
    cycles = sum(node.cycles or 0 for node in nodes) or None  # of tiny networks it says 0
    return CostEstimate(VERSION, profile.facts["accelerator"].value, cycles, None, memory, nodes, notes)

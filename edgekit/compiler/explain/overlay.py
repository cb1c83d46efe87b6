"""Node data for Model Explorer: one column a file, to colour a graph by time, loss, precision or place.

A file is a ``GraphNodeData`` of https://github.com/google-ai-edge/model-explorer (``node_data_builder.py``):
values by the id of a node, and their colours. Ids are names of the source model's nodes; without recorded
names they are the engine's. In another graph no node has such a name, and the file colours nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.source_names import CALLED_BY, read_source_names
from edgekit.bundle.variant import Variant
from edgekit.compiler.explain.accelerated import SUFFIX, AcceleratedExplanation
from edgekit.compiler.explain.explain import Explanation, Named, ValueFact
from edgekit.system.atomic_files import new_folder
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Json

Values = Mapping[str, float | str]

COOL, WARM = "#ffffff", "#e8590c"
"""Colours of the least and of the most of a column: time, or loss."""
PLACES = ("#9ec5fe", "#ffd8a8", "#b2f2bb", "#eebefa", "#dee2e6")
"""Colours of places and precisions, in the order in which they come."""
UNITS = {"time": " in ms", "loss": " in dB SQNR"}
GONE = "not finite"


def write_overlays(
    bundle: Bundle, folder: Path, explained: Sequence[Explanation | AcceleratedExplanation]
) -> list[str]:
    """Write ``VARIANT.COLUMN.json`` for each variant and each column that has a value.

    Args:
        folder: Folder to create; it must be missing or empty.
        explained: Results of ``explain``, or of ``explain_accelerated``.

    Returns:
        The names of the files.

    Raises:
        UsageError: the folder is not empty, or cannot be written.
    """
    variants = {variant.name: variant for variant in bundle.variants}
    written = []
    with new_folder(folder) as root:
        for each in explained:
            for column, values in _columns(bundle, variants, each).items():
                if values:
                    name = f"{each['variant'].replace('@', '-')}.{column}.json"
                    text = json.dumps(_node_data(each["variant"], column, values), indent=1)
                    (root / name).write_text(text + "\n", "utf-8")
                    written.append(name)
    return written


def _columns(
    bundle: Bundle, variants: Mapping[str, Variant], explained: Explanation | AcceleratedExplanation
) -> dict[str, Values]:
    if "placement" in explained:
        copy = cast("AcceleratedExplanation", explained)
        places = [(row, row["node"], row["provider"].removesuffix(SUFFIX)) for row in copy["placement"]]
        return {"loss": _losses(copy["values"]), "place": _by_source(places)}
    variant = variants[explained["variant"]]
    times: dict[str, float | str] = {}
    for node in explained["nodes"]:
        key = node["source"] or node["node"]
        times[key] = round(float(times.get(key, 0.0)) + node["ms"], 4)
    costs = [(cost, cost["node"], cost["device"]) for cost in explained["costs"]]
    return {
        "time": times,
        "loss": _losses(explained["values"]),
        "precision": _precisions(bundle, variant),
        "place": _by_source(costs),
    }


def _by_source(rows: Iterable[tuple[Named, str, str]]) -> Values:
    """Return the value of the first row of each source node, also of those that run with others."""
    values: dict[str, float | str] = {}
    for named, node, value in rows:
        for name in (named["source"] or node, *named["merged"]):
            values.setdefault(name, value)
    return values


def _losses(rows: Sequence[ValueFact]) -> Values:
    """Return the SQNR in dB that each node alone would leave."""
    losses: dict[str, float | str] = {}
    for row in rows:
        value = row["adds_db"] if row["finite"] else GONE
        if value is not None:
            losses.setdefault(row["source"] or row["node"], value)
    return losses


def _precisions(bundle: Bundle, variant: Variant) -> Values:
    """Return the precision of each layer with weights: others take that of the values they read."""
    quantization = variant.evidence.get("quantization")
    floats = set(quantization["float"]["names"]) if quantization else set()
    stored = variant.precision.partition("-")[0]
    return {
        source.name: FULL_PRECISION if floats & {node.name, source.name, *node.values} else stored
        for node in read_source_names(bundle).nodes
        for source in node.source[:1]
        if source.op in CALLED_BY
    }


def _node_data(variant: str, column: str, values: Values) -> dict[str, Json]:
    """Return a ``GraphNodeData``. Of losses the lowest is the worst."""
    name = f"{variant}: {column}{UNITS.get(column, '')}"
    if column in ("place", "precision"):
        colours = {value: PLACES[at % len(PLACES)] for at, value in enumerate(dict.fromkeys(values.values()))}
        return {
            "name": name,
            "results": {node: {"value": value, "bgColor": colours[value]} for node, value in values.items()},
        }
    low, high = (WARM, COOL) if column == "loss" else (COOL, WARM)
    return {
        "name": name,
        "results": {
            node: {"value": value, **({"bgColor": WARM} if value == GONE else {})}
            for node, value in values.items()
        },
        "gradient": [{"stop": 0, "bgColor": low}, {"stop": 1, "bgColor": high}],
    }

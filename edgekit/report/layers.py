"""The layers of the model in blocks that unfold: where the time goes, what int8 costs, and what was done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgekit.bundle.causes import CauseText
from edgekit.bundle.source_names import CanonicalNode
from edgekit.bundle.variant import Variant
from edgekit.compiler.explain.accelerated import AcceleratedExplanation
from edgekit.compiler.explain.explain import Explanation
from edgekit.errors import printable
from edgekit.system.formats.plain_text import milliseconds

MOST_BLOCKS = 24
"""Blocks that a reader takes in at a glance: scopes are cut shorter, or layers joined, until so few."""
COLUMNS = ("layer", "operator", "time", "alone in int8", "float in", "processor", "cause and repair")
NONE = "-"


@dataclass(frozen=True)
class Block:
    """Layers that follow each other.

    Attributes:
        name: Their common scope, or the first and the last one's name.
        count: Number of layers.
        time_share: Share of the time of all layers, 0 to 1; None if it was not measured.
        loss_share: How much its worst layer costs beside the worst of all, 0 to 1; None if none was examined.
        summary: All of it in words.
        rows: The columns of each layer of which something is known.
    """

    name: str
    count: int
    time_share: float | None
    loss_share: float | None
    summary: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Layers:
    """Those of COLUMNS of which anything is known, and the blocks."""

    columns: tuple[str, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class _Layer:
    name: str
    op: str
    scope: tuple[str, ...]
    ms: float | None
    alone_db: float | None
    stays: int
    on_cpu: str
    cause: str


def layers_of(
    nodes: Sequence[CanonicalNode],
    variants: Sequence[Variant],
    explained: Sequence[Explanation],
    accelerated: Sequence[AcceleratedExplanation] = (),
    causes: Sequence[CauseText] = (),
) -> Layers:
    """Return the blocks of the canonical graph by the source model's names; none if the bundle has no names.

    Args:
        nodes: In the graph's order.
        variants: Their int8 searches tell what each layer costs alone, and which ones stay float.
        explained: Times are those of the first one that has some.
        accelerated: Processors are those of the first one whose engine reports them.
        causes: Why layers lose accuracy.
    """
    damage, floats, tried = _damage(variants), _floats(variants), _int8(variants)
    timed = next((explanation for explanation in explained if explanation["nodes_ms"]), None)
    times = _times(timed) if timed else {}
    split = next((copy for copy in accelerated if copy["placement"]), None)
    reasons = _reasons(split) if split else {}
    why = {cause.layer: f"{cause.kind}: {cause.done}" for cause in reversed(causes)}
    layers = []
    for node in nodes:
        source = node.source[0] if node.source else None
        name = source.name if source else node.name
        values = (node.name, *node.values)
        on_cpu = reasons.get(name)
        layers.append(
            _Layer(
                name,
                source.op if source else "",
                tuple(re.split(r"[./]", source.scope.strip("/."))) if source and source.scope else (),
                times.get(name),
                min((damage[value] for value in values if value in damage), default=None),
                max((floats.get(value, 0) for value in values), default=0),
                "" if on_cpu is None else ", ".join(dict.fromkeys(filter(None, on_cpu))) or "accelerator",
                why.get(name, ""),
            )
        )
    whole_ms = sum(times.values())
    worst_db = min(damage.values(), default=0.0)
    blocks = [_block(members, whole_ms, worst_db, tried) for members in _grouped(layers)]
    rows = [row for block in blocks for row in block.rows]
    used = [index for index in range(len(COLUMNS)) if any(row[index] != NONE for row in rows)]
    return Layers(
        tuple(COLUMNS[index] for index in used),
        tuple(
            replace(block, rows=tuple(tuple(row[index] for index in used) for row in block.rows))
            for block in blocks
        ),
    )


def _grouped(layers: Sequence[_Layer]) -> list[list[_Layer]]:
    """Group by the longest scopes of which there are at most MOST_BLOCKS; else by equal numbers."""
    deepest = max((len(layer.scope) for layer in layers), default=0)
    for depth in range(deepest, 0, -1):
        groups = list(_runs(layers, depth))
        if 1 < len(groups) <= MOST_BLOCKS:
            return groups
    size = max(1, -(-len(layers) // MOST_BLOCKS))
    return [list(layers[start : start + size]) for start in range(0, len(layers), size)]


def _runs(layers: Sequence[_Layer], depth: int) -> Iterator[list[_Layer]]:
    """Yield layers that follow each other in one scope. One without a scope, which a pass has made, stays
    with those before it."""
    run: list[_Layer] = []
    scope: tuple[str, ...] = ()
    for layer in layers:
        if run and layer.scope and scope and layer.scope[:depth] != scope:
            yield run
            run = []
        scope = layer.scope[:depth] or scope
        run.append(layer)
    if run:
        yield run


def _block(layers: Sequence[_Layer], whole_ms: float, worst_db: float, tried: int) -> Block:
    first, last = layers[0].name, layers[-1].name
    scopes = [layer.scope for layer in layers if layer.scope]
    common = _common(scopes) if scopes else ()
    ms = sum(layer.ms for layer in layers if layer.ms is not None)
    alone = min((layer.alone_db for layer in layers if layer.alone_db is not None), default=None)
    stays = sum(layer.stays > 0 for layer in layers)
    known = [
        layer
        for layer in layers
        if layer.ms is not None or layer.alone_db is not None or layer.stays or layer.on_cpu
    ]
    parts = [f"{len(layers)} layer{'s' if len(layers) > 1 else ''}"]
    parts += [f"{ms / whole_ms:.0%} of the time"] if whole_ms else []
    parts += [f"worst alone in int8: {alone:.1f} dB"] if alone is not None else []
    parts += [f"{stays} in float"] if stays else []
    return Block(
        printable(".".join(common) or (first if first == last else f"{first} to {last}")),
        len(layers),
        ms / whole_ms if whole_ms else None,
        None if alone is None else min(1.0, 10 ** ((worst_db - alone) / 20)),
        ", ".join(parts),
        tuple(_row(layer, tried) for layer in known),
    )


def _common(scopes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    least, most = min(scopes), max(scopes)
    same = 0
    while same < min(len(least), len(most)) and least[same] == most[same]:
        same += 1
    return least[:same]


def _row(layer: _Layer, tried: int) -> tuple[str, ...]:
    return (
        printable(layer.name),
        layer.op or NONE,
        NONE if layer.ms is None else milliseconds(layer.ms),
        NONE if layer.alone_db is None else f"{layer.alone_db:.1f} dB",
        f"{layer.stays} of {tried}" if layer.stays else NONE,
        printable(layer.on_cpu) or NONE,
        printable(layer.cause) or NONE,
    )


def _damage(variants: Sequence[Variant]) -> dict[str, float]:
    """Block -> the lowest SNR in dB of the outputs with it alone in int8, over all searches."""
    snr_by_block: dict[str, float] = {}
    for variant in variants:
        search = variant.evidence.get("search") or {}
        for name, snr_db in (search.get("damage") or {}).items():
            snr_by_block[str(name)] = min(float(snr_db), snr_by_block.get(str(name), float(snr_db)))
    return snr_by_block


def _int8(variants: Sequence[Variant]) -> int:
    return sum("quantization" in variant.evidence for variant in variants if not variant.rejected)


def _floats(variants: Sequence[Variant]) -> dict[str, int]:
    """Block -> in how many int8 variants that are kept it stays float."""
    count_by_block: dict[str, int] = {}
    for variant in variants:
        quantization = variant.evidence.get("quantization")
        for name in quantization["float"]["names"] if quantization and not variant.rejected else ():
            count_by_block[str(name)] = count_by_block.get(str(name), 0) + 1
    return count_by_block


def _times(explanation: Explanation) -> dict[str, float]:
    """Return the ms of each source node: the time of the engine's nodes that compute it."""
    times: dict[str, float] = {}
    for node in explanation["nodes"]:
        if node["source"] is not None:
            times[node["source"]] = times.get(node["source"], 0.0) + node["ms"]
    return times


def _reasons(copy: AcceleratedExplanation) -> dict[str, list[str]]:
    """Return for each source node the reasons why nodes that compute it run on the CPU; "" for one that the
    accelerator runs."""
    reasons: dict[str, list[str]] = {}
    for node in copy["placement"]:
        for name in (node["source"], *node["merged"]) if node["source"] is not None else ():
            reasons.setdefault(str(name), []).append(node["reason"])
    return reasons

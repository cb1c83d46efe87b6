"""Text output of ``edgekit explain``, from the facts in explain.py and explain_diff.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgekit.bundle.causes import CauseText
from edgekit.compiler.explain.diff import LayerChange, VariantChange
from edgekit.compiler.explain.explain import Explanation, Named, ValueFact
from edgekit.system.formats.plain_text import milliseconds, shortened, table

NAMED = 8
"""So many nodes of a kind are told; ``--json`` has all."""
MERGED = 2
"""So many names of merged nodes are told."""


def render(explanations: Iterable[Explanation]) -> str:
    return "\n\n".join("\n".join(_lines(explanation)) for explanation in explanations)


def _lines(explanation: Explanation) -> list[str]:
    lines = [
        f"  {explanation['variant']}  output SNR {explanation['snr']} at the build  {explanation['status']}"
    ]
    if explanation["nodes_ms"]:
        lines += ["", *_time_lines(explanation, explanation["nodes_ms"]), ""]
    else:
        lines.append(f"  time      {explanation['no_times'] or 'below the resolution of the profiler'}")
    lines += _cost_lines(explanation)
    if explanation["values"]:
        values = _counted(len(explanation["values"]), "value")
        lines += [f"  accuracy  {values} inside the network compared with {explanation['against']}, by SQNR"]
        worst = [v for v in explanation["values"] if v["adds_db"] is not None or not v["finite"]][:NAMED]
        lines += value_rows(worst)
    else:
        lines.append(f"  accuracy  {explanation['no_values']}")
    causes = [f"  cause     {CauseText(**cause)}" for cause in explanation["causes"]]
    lines += ["", *causes] if causes else []
    lines += [f"  price     {explanation['price']}"] if explanation["price"] else []
    return [
        *lines,
        *([""] if explanation["notes"] else []),
        *(f"  note      {note}" for note in explanation["notes"]),
    ]


def _time_lines(explanation: Explanation, total: float) -> list[str]:
    nodes, threads = _counted(len(explanation["nodes"]), "node"), _counted(explanation["threads"], "thread")
    lines = [f"  time      {milliseconds(total)} in {nodes} on {threads}: {_by_op(explanation, total)}"]
    run, outside = explanation["run_ms"], explanation["outside_ms"]
    if run and outside is not None:
        share = f"{abs(outside) / run:.0%}"
        rest = f"{share} of it outside nodes" if outside >= 0 else f"{share} less than the nodes alone"
        parts = ", ".join(
            f"{name} {ms / run:.0%}" for name, ms in explanation["parts"].items() if ms / run >= 0.005
        )
        detail = f" ({parts})" if parts and outside > 0 else ""
        lines.append(f"            a run takes {milliseconds(run)}, {rest}{detail}")
    if explanation["how"]:
        lines.append(f"            {explanation['how']}")
    cells = [
        (shortened(called(n, n["node"])), milliseconds(n["ms"]), f"{n['ms'] / total:.0%}", n["op"])
        for n in explanation["nodes"][:NAMED]
    ]
    return [*lines, *indented(("slowest", "time", "share", "op"), cells)]


def _cost_lines(explanation: Explanation) -> list[str]:
    """Format the estimates of the target's own tool, node by node."""
    costs = explanation["costs"]
    if not costs:
        return []
    cells = [
        (
            shortened(called(c, c["node"])),
            "-" if c["cycles"] is None else f"{c['cycles']:,}",
            c["device"],
            c["op"],
            c["why"],
        )
        for c in costs[:NAMED]
    ]
    head = f"  estimated {_counted(len(costs), 'node')} by {explanation['estimated_by']}, not measured"
    return [head, *indented(("node", "cycles", "on", "op", "why not on the accelerator"), cells), ""]


def called(row: Named, node: str) -> str:
    """Return the source node, its module if not part of the name, and the nodes merged with it."""
    name = row["source"]
    if name is None:
        return node
    scope = f"{row['scope']}: " if row["scope"] and "/" not in name else ""
    several = row["merged"]
    others = f" + {len(several)} more" if len(several) > MERGED else "".join(f" + {n}" for n in several)
    return f"{scope}{name}{others}"


def render_diff(changes: Iterable[VariantChange], base: str, bundle_name: str) -> str:
    return "\n\n".join("\n".join(_changed(change, base, bundle_name)) for change in changes)


def _changed(change: VariantChange, base: str, bundle_name: str) -> list[str]:
    lines = [f"  {change['variant']}"]
    if change["only_in"]:
        return [f"{lines[0]}  only in {change['only_in']}"]
    first, then = change["run_ms"]
    if first and then:
        lines.append(
            f"  time      {milliseconds(first)} -> {milliseconds(then)} a run  ({then / first:.2f}x)"
        )
    else:
        lines.append(f"  time      {change['no_times']}")
    lines += _layers(change["slower"], "slower") + _layers(change["faster"], "faster")
    was, now = change["snr"]
    size = " -> ".join(f"{size / 1e6:.2f} MB" for size in change["size_bytes"])
    lines += [f"  accuracy  output SNR {was} -> {now} at the builds", f"  size      {size}"]
    worse = change["worse"][:NAMED]
    cells = [(w["layer"], *(_decibels(db) for db in w["snr_db"])) for w in worse]
    lines += indented(("worse", base, bundle_name), cells)
    return lines + [f"  note      {note}" for note in change["notes"]]


def _layers(changes: Sequence[LayerChange], word: str) -> list[str]:
    cells = [
        (c["layer"], *(milliseconds(ms) for ms in c["ms"]), f"{c['ms'][1] - c['ms'][0]:+.3f} ms")
        for c in changes[:NAMED]
    ]
    return indented((word, "before", "now", "change"), cells)


def _decibels(value: float | None) -> str:
    return "exact" if value is None else f"{value:.1f} dB"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _by_op(explanation: Explanation, total: float) -> str:
    spent: dict[str, float] = {}
    for node in explanation["nodes"]:
        spent[node["op"]] = spent.get(node["op"], 0.0) + node["ms"]
    longest = sorted(spent.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{op} {ms / total:.0%}" for op, ms in longest)


def in_decibels(value: ValueFact, db: float | None) -> str:
    """Format the SQNR ``db`` of a value with its unit, or state that the value is not finite."""
    return "not finite" if not value["finite"] else _decibels(db)


def value_rows(values: Sequence[ValueFact]) -> list[str]:
    """Return the lines of a table of values, with the noise that their nodes add."""
    cells = [
        (shortened(called(v, v["node"])), in_decibels(v, v["adds_db"]), in_decibels(v, v["snr_db"]), v["op"])
        for v in values
    ]
    return indented(("largest error", "own SQNR", "total SQNR", "op"), cells)


def indented(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table, indented below the words of a line."""
    return [f"  {line}" for line in table(columns, rows)] if rows else []

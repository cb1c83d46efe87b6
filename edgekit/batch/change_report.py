"""Changes by a rebuild, as text and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.system.formats.plain_text import escaped, markdown_table, size, table

if TYPE_CHECKING:
    from edgekit.batch.compare_bundles import Change
    from edgekit.batch.rebuild import Rebuild

COLUMNS = ("variant", "score", "size", "latency")


def verdict(rebuild: Rebuild) -> str:
    """Return the decision in a sentence."""
    if rebuild.worse:
        return f"not kept: {'; '.join(rebuild.worse)}"
    if rebuild.unproved:
        advice = "measure longer with --seconds, or on a machine with less other load"
        return f"not kept, because not proved: {'; '.join(rebuild.unproved)}; {advice}"
    if not rebuild.is_written:
        return "not kept: nothing has changed"
    return "kept: no variant is worse" + ("" if not rebuild.same else ", and all files are the same")


def change_text(rebuild: Rebuild) -> str:
    lines = table(COLUMNS, [cells(change) for change in rebuild.changes])
    lines += ["", *(f"  tool      {line}" for line in tool_lines(rebuild))] if rebuild.tools else []
    notes = [f"  note      {note}" for note in rebuild.notes]
    return "\n".join([*lines, *notes, "", f"  {verdict(rebuild)}"])


def change_markdown(rebuild: Rebuild, name: str) -> str:
    rows = markdown_table(COLUMNS, [cells(change) for change in rebuild.changes])
    parts = [f"# {escaped(name)} built again", escaped(verdict(rebuild)), rows]
    if rebuild.tools:
        parts.append("\n".join(["Tools:", "", *(f"- {escaped(line)}" for line in tool_lines(rebuild))]))
    if rebuild.notes:
        parts.append("\n".join(f"- {escaped(note)}" for note in rebuild.notes))
    before, after = rebuild.size_bytes
    parts.append(f"The file has {size(after)}, and had {size(before)}.")
    return "\n\n".join(parts) + "\n"


def tool_lines(rebuild: Rebuild) -> list[str]:
    return [f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in rebuild.tools.items()]


def cells(change: Change) -> tuple[str, ...]:
    before, after = change["size_bytes"]
    sizes = size(after) if before == after else f"{size(before)} -> {size(after)}"
    latency = "the same bytes" if change["same"] else change["latency"] or change["status"][1] or "gone"
    return change["variant"], _score(change), sizes, latency


def _score(change: Change) -> str:
    if change["score"] is None:
        return "-"
    one, two = ("exact" if value is None else f"{value:.4g}" for value in change["score"])
    return f"{change['metric']} {two}" if one == two else f"{change['metric']} {one} -> {two}"

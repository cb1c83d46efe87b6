"""What ``edgekit card`` prints."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from edgekit.compiler.card_inference.draft import Draft


def drafted_text(draft: Draft, model: Path, output: Path) -> str:
    """The task, what was guessed, and the next step."""
    task = draft.card.task
    lines = [
        f"  task      {task.kind}, decoded as {task.decode}" if task else "  task      none was recognized"
    ]
    if draft.guessed:
        lines.append(f"  guessed   {', '.join(draft.guessed)}")
    build = f"edgekit build {quote(str(model))} --card {quote(str(output))} -t ort"
    advice = f"look at the guessed lines, then {build}" if draft.guessed else build
    return "\n".join([*lines, "", f"  {output}", f"  next: {advice}"])

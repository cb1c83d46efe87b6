"""Metrics of several models in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from edgekit.runtime.metrics import prometheus

if TYPE_CHECKING:
    from edgekit.serve.served_model import ServedModel
    from edgekit.serve.served_text import ServedText
    from edgekit.tensor_spec import Json


def snapshots(models: Iterable[ServedModel | ServedText]) -> list[dict[str, Json]]:
    """Return the metrics of each model, with its name and version on this server."""
    return [{**m.metrics.snapshot(), "model": m.name, "version": m.version} for m in models]


def text(snapshots: Iterable[Mapping[str, Json]]) -> str:
    """Return the metrics as text, with each metric declared once, as the format requires."""
    families: dict[str, list[str]] = {}
    for snapshot in snapshots:
        family = ""
        for line in prometheus.text(snapshot).splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
            lines = families.setdefault(family, [])
            if not line.startswith("# ") or line not in lines:
                lines.append(line)
    return "\n".join(line for lines in families.values() for line in lines) + "\n"

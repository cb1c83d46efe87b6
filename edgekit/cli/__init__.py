"""The command line."""

from __future__ import annotations

from edgekit.cli.verbs import main

__all__ = ["main"]

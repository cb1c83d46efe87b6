"""The build: from a model to a verified bundle, one line a stage in build_bundle.py."""

from __future__ import annotations

from edgekit.pipeline.build_bundle import build

__all__ = ["build"]

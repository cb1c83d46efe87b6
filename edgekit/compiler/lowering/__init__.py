"""Lowering code shared by targets: from the canonical graph to their own format."""

"""Builds of models that write tokens."""

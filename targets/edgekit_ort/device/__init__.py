"""Device-side part of accelerators.py: which execution provider ran which node."""

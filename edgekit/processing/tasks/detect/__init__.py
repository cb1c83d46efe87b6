"""Boxes of things: one module for each family of detectors."""

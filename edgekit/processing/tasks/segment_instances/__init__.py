"""Boxes and masks of things: one module for each family of models."""

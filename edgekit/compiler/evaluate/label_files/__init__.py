"""Readers of labels in the formats that people have them in."""

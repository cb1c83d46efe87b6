"""Readers and writers of plain formats that trust nothing: JSON, TOML, .npy, and text for people."""

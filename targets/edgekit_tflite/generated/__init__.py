"""Code made by other tools; README.md says which and from what."""

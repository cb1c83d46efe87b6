"""What targets share on the way from the canonical graph to their own format."""

"""Placement of quantization under a target's rules: the values, their scales, and the Q/DQ graph."""

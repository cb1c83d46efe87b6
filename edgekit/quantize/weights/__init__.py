"""Weights to integers: rounding that compensates its own error, and bias correction."""

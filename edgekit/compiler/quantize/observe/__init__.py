"""Calibration: statistics of every tensor of the float model, collected once for all targets."""

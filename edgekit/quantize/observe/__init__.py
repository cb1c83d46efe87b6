"""Calibration: what is observed of every tensor of the float model, once for all targets."""

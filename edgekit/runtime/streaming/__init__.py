"""Frames in, predictions out, on all cores."""

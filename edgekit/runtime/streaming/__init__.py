"""Frames in, answers out, on all cores."""

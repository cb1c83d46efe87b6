"""Answers used again: for equal inputs, and for frames that look the same."""

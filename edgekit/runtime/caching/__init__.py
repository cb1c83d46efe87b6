"""Predictions used again: for equal inputs, or for frames that look alike."""

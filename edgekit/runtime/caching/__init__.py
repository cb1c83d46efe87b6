"""Prediction caches: for equal inputs, and for similar frames."""

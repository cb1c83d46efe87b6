"""Accuracy of models on labelled samples."""

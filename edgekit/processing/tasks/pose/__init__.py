"""Keypoints of people and things: one module for each family of models."""

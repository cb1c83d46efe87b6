"""Evaluation of variants: samples, verification, fidelity, task metrics, timing."""

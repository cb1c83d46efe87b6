"""Latency of a bundle on this machine: measure, compare, sweep, keep a history, check limits."""

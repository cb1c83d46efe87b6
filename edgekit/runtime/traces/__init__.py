"""Traces: where the time of one request went, across a device and its servers."""

"""Latency histograms and counters, and their export to Prometheus and OTLP."""

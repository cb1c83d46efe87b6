"""A latency budget: drift detection, system signals, and switching to a faster variant."""

"""Is a variant right, how good is it, and how fast: samples, fidelity, task metrics, timing."""

"""The search over quantized candidates: which to build next, what was measured, when to stop."""

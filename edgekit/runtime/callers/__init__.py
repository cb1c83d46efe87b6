"""Many callers, one session."""

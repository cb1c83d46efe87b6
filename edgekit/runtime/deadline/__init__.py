"""Answers within a deadline: a run that takes too long is left behind, a standby variant answers."""

"""Outputs within a deadline: a watchdog times out a slow run, and a standby variant takes over."""

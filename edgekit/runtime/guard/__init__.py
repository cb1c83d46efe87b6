"""What stands around a run when it is asked for: a probe in a child process, a deadline, the memory left."""

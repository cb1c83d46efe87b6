"""A request queue in front of a session: deadlines, priorities and batching."""

"""Many callers of one session: a queue with deadlines and priorities, and batches."""

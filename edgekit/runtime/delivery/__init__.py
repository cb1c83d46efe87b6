"""Results and metrics for a backend that is not always there: an outbox and its sinks."""

"""A server of the Open Inference Protocol v2 beside the session."""

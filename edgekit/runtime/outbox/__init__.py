"""Results that reach a server once there is a network: a durable queue and its sinks."""

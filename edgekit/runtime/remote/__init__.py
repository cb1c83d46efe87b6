"""A server next to the local session: Open Inference Protocol, with deadlines and a local fallback."""

"""Reports of many devices: read, added up, and what they say about a rollout."""

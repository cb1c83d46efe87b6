"""Engines built on the device: in a resource-limited child process, cached for later starts."""

"""Engines that are built on the device: in a child process, with limits, kept for the next start."""

"""Engines that are built on the device itself, in a child process, whole or not at all."""

"""Oriented boxes of things: ships, vehicles and buildings from above, text."""

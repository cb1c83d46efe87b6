"""Readers of files: language, speech and text-to-text models, without a framework."""

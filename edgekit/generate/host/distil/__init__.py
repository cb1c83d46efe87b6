"""Drafts for speculative decoding, trained on the large model's texts."""

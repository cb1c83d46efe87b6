"""Fallback: the order of the variants and what to do when one fails (policy), and its execution (chain)."""

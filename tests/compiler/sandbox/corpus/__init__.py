"""Crafted models: each is refused with its reason, or contained.

python -m tests.compiler.sandbox.corpus
"""

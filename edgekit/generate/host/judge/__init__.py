"""Evaluation of language models: perplexity, and golden prompts on the engines of this machine."""

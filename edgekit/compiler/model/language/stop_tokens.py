"""Tokens that end an answer even where a model's files do not say so."""

STOP_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|eom_id|>")
"""Of ChatML, Llama 3, Phi 3 and Gemma, as ``llama_vocab::impl::load`` of ggml-org/llama.cpp has them."""

"""Text-to-text encoder-decoders (T5, BART, Marian): readers of their folders and tokenizers."""

"""Graphs of encoder-decoders: an encoder, and a decoder of one token with its caches as inputs."""

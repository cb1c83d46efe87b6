"""Build of a text-to-text model: a folder in, a bundle with a verified encoder and decoder for each target
out."""

"""Speech models with an encoder and a decoder: readers of their files, and the float reference."""

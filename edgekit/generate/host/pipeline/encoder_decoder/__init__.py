"""Build of an encoder-decoder: both parts compiled for each target, judged by what the model is for."""

"""Smaller models: structured pruning of the ONNX graph, with least-squares reconstruction."""

"""ONNX models on the host: reading and checking, shape inference, rewriting, the reference executor."""

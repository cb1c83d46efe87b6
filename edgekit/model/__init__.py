"""ONNX models on the host: opened and checked, their shapes inferred, their nodes rewritten and evaluated."""

"""A target whose artifact runs on onnx's reference evaluator."""

"""Weight quantization: round-to-nearest, GPTQ, and bias correction."""

"""Compiler front end (host): from a trained model to verified variants in a bundle.

importers       models of other frameworks to ONNX
model           opening an untrusted ONNX file, shapes, checks, the reference
passes          the canonical graph: an ordered list of passes
lowering        what targets share when they lower ONNX to another format
evaluate        samples, verification, accuracy, timing
quantize        int8: observe, placement, weights, search
compress        pruning and training of smaller models
card_inference  ``edgekit model card``: a drafted card
build           ``edgekit build``, stage by stage
hub             models and bundles on the Hugging Face Hub
sandbox         the confined child process in which files are opened and built
explain         time and accuracy by node
bench           latency of a bundle, its history and its limits
toolchains      vendors' compilers in environments of their own
"""

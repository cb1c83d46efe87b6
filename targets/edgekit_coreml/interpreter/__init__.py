"""The reference executor: runs an .mlpackage anywhere, without Core ML and without coremltools.

    program.py      an .mlpackage as a program: operators, types, constants, weights
    execute.py      runs a program, checks every value against its declaration, rounds as declared
    kernels_*.py    one function an operator: numpy, ONNX Runtime for convolutions and pools
    one_node.py     a model of one ONNX operator, written byte by byte

It computes what the package says, in the types that the package declares. What Apple's hardware does beyond
that (order of summation, bugs of its kernels, which processor takes which operator) it cannot know.
"""

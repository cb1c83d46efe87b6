"""Core AI: iPhone, iPad and Mac from iOS 27 and macOS 27 on, where it succeeds Core ML.

The package coreai-core (Apple, a beta) has the format and, on Linux x86-64, a runtime that computes .aimodel
files on the CPU; coreai-onnx (not Apple's) converts ONNX. Both are pinned: the format may still change.

    convert.py      the converter, and the nodes that it refuses
    compile.py      all of it in order
    run.py          Apple's runtime

Versions: coreai-core 1.0.0b3, coreai-onnx 1.2.1; CPython 3.11 to 3.14.

Package: https://pypi.org/project/coreai-core/
Converter: https://github.com/devin-lai/coreai-onnx
"""

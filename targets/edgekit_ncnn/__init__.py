"""ncnn, Tencent's engine for phones and ARM boards, on the CPU.

Chips: ARM, x86-64, RISC-V, MIPS and LoongArch on Linux, Android, iOS, macOS and Windows.
Versions: ncnn 1.0.20261020.

The compiler lowers the canonical ONNX graph to ncnn's two files itself: no pnnx, no converter.

    ops_*.py        ONNX op -> layers of ncnn, one function an op
    builder.py      what they build with: values, and the shapes in which blobs store them
    network.py      layers and weights, and the two files that they become
    integer.py      convolutions on integers: scales, and integers from one to the next
    quant_rules.py  which nodes are computed on integers
    compile.py      all of it in order
    run.py          the runner

    https://github.com/Tencent/ncnn/blob/master/docs/developer-guide/operators.md     layers, parameters
    https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure               both files
"""

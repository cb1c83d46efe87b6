"""ncnn, Tencent's engine for phones, on the CPU.

Chips: ARM, x86-64, RISC-V, MIPS and LoongArch on Linux, Android, iOS, macOS and Windows.
Versions: ncnn and pnnx of 2026-10-20; ``ncnn.Mat`` takes batches since 2026.

    https://github.com/Tencent/ncnn/wiki                          operators, formats, options
    https://github.com/Tencent/ncnn/tree/master/tools/pnnx        the converter
"""

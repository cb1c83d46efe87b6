"""Core ML: iPhone, iPad and Mac, on the CPU, the GPU and the Neural Engine.

The compiler lowers the canonical ONNX graph to MIL through coremltools' builder: no torch. What it writes is
run anywhere by the reference executor in interpreter/.

    ops_*.py       ONNX op -> MIL operators, one function an op
    builder.py     what they build with: values, constants, precision
    constants.py   what is stored: values, tables, integers
    program.py     the program's inputs and outputs
    package.py     the program as an .mlpackage, the same bytes each time
    float32_regions.py   nodes of an fp16 program that samples show must compute in float32
    compile.py     all of it in order
    interpreter/   reads an .mlpackage and runs it with numpy and ONNX Runtime's kernels, without Core ML
    run.py         Core ML on a Mac, the reference executor elsewhere

Versions: coremltools 9 or newer writes; packages are for iOS 15 to 18 and 26, and the macOS of the
same year.

MIL operators: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html
Format: https://apple.github.io/coremltools/mlmodel/Format/MIL.html
"""

"""LiteRT (TensorFlow Lite): CPUs from armv7 to x86-64 by XNNPACK, and what delegates reach.

The compiler lowers the canonical ONNX graph to a .tflite file itself: no TensorFlow, no converter.

    ops_*.py       ONNX op -> TFLite operators, one function an op
    builder.py     what they build with: values in symbolic layouts
    layout.py      the algebra of layouts
    pairs.py       reading Q/DQ pairs
    integer.py     the plan of a quantized model: what is computed on integers; integer_rules.py says how
    stored.py      floats held as int8, and the conversions between
    padding.py     ONNX pads -> SAME, VALID or PAD
    graph.py       the program before it is bytes
    facts.py       what the report says of it
    flatbuffer.py  the program as tables, by the tables of schema.py
    assembly.py    tables and weights as one file, of any size
    compile.py     all of it in order
    app.py         the file with the card in it, for Android's tools; metadata.py writes it

Files load in ai-edge-litert and in tflite-runtime 2.14.

Schema: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs
Operators: https://ai.google.dev/edge/litert/models/ops_compatibility
XNNPACK delegate: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/delegates/xnnpack/README.md
"""

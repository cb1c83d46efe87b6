"""ONNX graphs of decoders and encoder-decoders, in the forms that engines are fast with."""
